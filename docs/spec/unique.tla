------------------------------- MODULE unique -------------------------------
(* Keys that name one row in all partitions (RFC 0030), beside each other. Each *)
(* writer has one operation: it puts keys into a partition, wherever they were, *)
(* inserts them, or deletes one. A put adds one to what it found, or to what    *)
(* an older version had, if it names that as what it read. All keys have one    *)
(* bucket number, so a bucket is a partition, and a writer stages the whole of  *)
(* each bucket in which a row comes or goes. A commit meets another one in two  *)
(* ways: in a bucket that both wrote, and by a key that both brought, wherever. *)
(* Anybody may pause for ever. commit.tla describes publishing.                 *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Keys,     \* numbers; the table begins with the key 1
  Places,   \* partitions, numbers; it is in the partition 1
  Writers,  \* numbers
  Without   \* names of rules that are left out, to show that each is needed

Rule(name) == name \notin Without

VARIABLES
  log,     \* the decisions, each with the rows after it: by partition and key, 0 for none
  writer,  \* what each writer has staged
  named,   \* the partitions that the records of each writer name
  files    \* the partitions in which it has files

vars == <<log, writer, named, files>>

Newest == Len(log)
Last == log[Newest]
None == [k \in Keys |-> 0]
Start == [p \in Places |-> [k \in Keys |-> IF p = 1 /\ k = 1 THEN 1 ELSE 0]]

\* A decision: its kind and author, where which keys were touched, and which of them it brought
\* there. `due` says what the operations give, one after the other.
Create == [kind |-> "create", by |-> 0, touched |-> {}, brought |-> {}, rows |-> Start, due |-> Start]

Idle == [pc |-> "idle", op |-> [kind |-> "none", keys |-> {}, place |-> 1, read |-> 0], base |-> 0,
         touched |-> {}, buckets |-> <<>>]
Greatest(numbers) == CHOOSE n \in numbers : \A m \in numbers : m <= n

-----------------------------------------------------------------------------
(* Staging: the rows of a version, joined with what came in.                   *)

\* `read` is the version from which its rows were computed; 0 for none.
Ops == [kind : {"put"}, keys : SUBSET Keys \ {{}}, place : Places, read : 0..(Newest - 1)]
       \cup [kind : {"insert"}, keys : SUBSET Keys \ {{}}, place : Places, read : {0}]
       \cup [kind : {"delete"}, keys : {{k} : k \in Keys}, place : {1}, read : {0}]

\* The rows after an operation that looks for its keys in some partitions.
After(rows, op, looked) ==
  LET from == IF op.read = 0 THEN rows ELSE log[op.read].rows
      found(k) == Greatest({from[p][k] : p \in (IF op.read = 0 THEN looked ELSE Places)} \cup {0})
  IN  [p \in Places |-> [k \in Keys |->
        IF k \notin op.keys THEN rows[p][k]
        ELSE IF op.kind # "delete" /\ p = op.place THEN found(k) + 1
        ELSE IF p \in looked THEN 0 ELSE rows[p][k]]]
Has(rows, op, looked) == \E p \in looked, k \in op.keys : rows[p][k] # 0

\* The index is of any version. What it does not cover is in the decisions since.
Told(op, covered) ==
  {p \in Places : \/ Has(log[covered].rows, op, {p})
                  \/ /\ Rule("window_asked")
                     /\ \E u \in (covered + 1)..Newest, k \in op.keys : <<p, k>> \in log[u].brought}

\* The partitions in which keys are looked for: all, or those that an index tells, and one's own.
Looks(op) ==
  IF ~Rule("everywhere") THEN {{op.place}}
  ELSE {Places} \cup IF op.kind = "delete" THEN {}
                     ELSE {{op.place} \cup Told(op, covered) : covered \in 1..Newest}

Touched(op, after) ==
  {<<p, k>> \in Places \X op.keys : after[p][k] # Last.rows[p][k]}
PlacesOf(pairs) == {pair[1] : pair \in pairs}

\* The buckets of some partitions, staged on the newest version; those staged before stay.
Staged(w, op, looked, which) ==
  LET after == After(Last.rows, op, looked)
      touched == Touched(op, after)
      kept == {pair \in writer[w].touched : pair[1] \notin which}
      pairs == kept \cup {pair \in touched : pair[1] \in which}
  IN  [pc |-> "ready", op |-> op, base |-> Newest, touched |-> pairs,
       buckets |-> [p \in PlacesOf(pairs) |-> IF p \in which THEN after[p] ELSE writer[w].buckets[p]]]

\* Its records name a partition before a file appears there.
Write(w, staged) ==
  LET places == DOMAIN staged.buckets
  IN  /\ writer' = [writer EXCEPT ![w] = staged]
      /\ files' = [files EXCEPT ![w] = @ \cup places]
      /\ named' = [named EXCEPT ![w] = @ \cup IF Rule("left_named") THEN places ELSE {staged.op.place}]
      /\ UNCHANGED log

\* Where nothing changes, and where an insert is refused, there is no commit.
Try(w, op, which) ==
  \E looked \in Looks(op) :
    LET staged == Staged(w, op, looked, which)
        refused == op.kind = "insert" /\ Has(Last.rows, op, looked)
    IN  IF refused \/ staged.touched = {}
        THEN writer' = [writer EXCEPT ![w].pc = "over"] /\ UNCHANGED <<log, named, files>>
        ELSE Write(w, staged)

Stage(w) == writer[w].pc = "idle" /\ \E op \in Ops : Try(w, op, Places)

-----------------------------------------------------------------------------
(* Conflicts.                                                                  *)

Since(s) == (s.base + 1)..Newest
RolledBack(w) == \E u \in 1..Newest : log[u].kind = "rollback" /\ log[u].by = w

\* The buckets that both wrote; without the rule, those in which both touched one key.
Here(s) ==
  {p \in DOMAIN s.buckets :
     \E u \in Since(s), k \in Keys :
       /\ <<p, k>> \in log[u].touched
       /\ Rule("buckets_meet") \/ <<p, k>> \in s.touched}

\* Whether both brought one key, wherever.
Brought(op) == IF op.kind = "delete" THEN {} ELSE {<<op.place, k>> : k \in op.keys}
Elsewhere(s) ==
  /\ Rule("keys_meet")
  /\ \E u \in Since(s), p, q \in Places, k \in Keys :
       <<p, k>> \in log[u].brought /\ <<q, k>> \in Brought(s.op)

\* Whether somebody touched a key since it was read, before what it rests on; without the rule,
\* where it writes too, or by bringing the key.
Behind(s) ==
  /\ s.op.read # 0
  /\ \E u \in (s.op.read + 1)..s.base, p \in Places, k \in s.op.keys :
       /\ <<p, k>> \in log[u].touched
       /\ Rule("taken_seen") \/ p \in DOMAIN s.buckets \/ <<p, k>> \in log[u].brought

Meets(s) == Here(s) # {} \/ Elsewhere(s) \/ Behind(s)

\* Somebody was first: what was staged is staged again, on the head.
Redo(w) ==
  LET s == writer[w]
  IN  /\ s.pc = "ready" /\ ~RolledBack(w) /\ Meets(s) /\ s.op.read = 0
      /\ Try(w, s.op, IF Rule("whole_number") THEN Places ELSE Here(s) \cup {s.op.place})

\* Rows that were computed from what was read are not staged again.
Refuse(w) ==
  /\ writer[w].pc = "ready" /\ Meets(writer[w]) /\ writer[w].op.read # 0
  /\ writer' = [writer EXCEPT ![w].pc = "over"]
  /\ UNCHANGED <<log, named, files>>

Commit(w) ==
  LET s == writer[w]
      in == IF Rule("one_decision") THEN DOMAIN s.buckets ELSE DOMAIN s.buckets \cap {s.op.place}
  IN  /\ s.pc = "ready" /\ ~Meets(s)
      /\ ~RolledBack(w) \/ ~Rule("rolled_back_ends")
      /\ log' = Append(log, [kind |-> "write", by |-> w, touched |-> s.touched,
                             brought |-> Brought(s.op),
                             rows |-> [p \in Places |-> IF p \in in THEN s.buckets[p] ELSE Last.rows[p]],
                             due |-> After(Last.due, [s.op EXCEPT !.read = 0], Places)])
      /\ writer' = [writer EXCEPT ![w].pc = "done"]
      /\ UNCHANGED <<named, files>>

-----------------------------------------------------------------------------
(* Recovery. Any writer may be taken for dead.                                 *)

RollBack(w) ==
  /\ writer[w].pc = "ready" /\ ~RolledBack(w)
  /\ log' = Append(log, [Last EXCEPT !.kind = "rollback", !.by = w, !.touched = {}, !.brought = {}])
  /\ UNCHANGED <<writer, named, files>>

\* Its files are deleted in the partitions that its records name, and the records go.
Sweep(w) ==
  /\ RolledBack(w) /\ named[w] # {}
  /\ files' = [files EXCEPT ![w] = @ \ named[w]]
  /\ named' = [named EXCEPT ![w] = {}]
  /\ UNCHANGED <<log, writer>>

-----------------------------------------------------------------------------

Init ==
  /\ log = <<Create>>
  /\ writer = [w \in Writers |-> Idle]
  /\ named = [w \in Writers |-> {}]
  /\ files = [w \in Writers |-> {}]
Next == \E w \in Writers : Stage(w) \/ Redo(w) \/ Refuse(w) \/ Commit(w) \/ RollBack(w) \/ Sweep(w)
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                             *)

\* A key has one row in all partitions, at each version (INV-08).
OneRowAKey == \A k \in Keys : Cardinality({p \in Places : Last.rows[p][k] # 0}) <= 1

\* No commit is lost, and each is whole: both sides of a move are there (INV-07).
RowsAreRight == Last.rows = Last.due

\* The files of every commit are there (INV-06).
FilesAreThere ==
  \A u \in 1..Newest : log[u].kind = "write" =>
    DOMAIN writer[log[u].by].buckets \subseteq files[log[u].by]

\* Once recovery has swept up behind a writer, none of its files is left.
NoOrphans ==
  \A w \in Writers : (RolledBack(w) /\ named[w] = {}) => files[w] = {}
=============================================================================
