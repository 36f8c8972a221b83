"""The record index of a table: built, published, verified and looked after."""
