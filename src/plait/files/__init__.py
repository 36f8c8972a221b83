"""Data files, deletion vectors, key sidecars: names, bytes, footers. No decision is made here."""
