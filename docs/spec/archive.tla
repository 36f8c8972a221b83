------------------------------ MODULE archive ------------------------------
(* Files of the archive (RFC 0018): who writes, names, merges and deletes      *)
(* them, and when slots may be emptied. commit.tla describes what readers of   *)
(* emptied slots do. Here every decision is one step. Any archiver may be      *)
(* taken for dead at any time, and any archiver may stop for good.             *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Archivers,   \* each moves decisions once
  MaxVersion,  \* decisions of a run, at most
  Without      \* the rules that are left out, to show that each is needed

VARIABLES
  log,      \* decisions: a commit, a rollback of an archiver, or the files of the archive
  emptied,  \* versions whose slots are empty
  files,    \* on storage: who wrote it, and the newest decision in it
  records,  \* archivers that have a pending record
  me        \* what each archiver does: where it is, v0, what it moves, what it knew

vars == <<log, emptied, files, records, me>>

Rule(name) == name \notin Without

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

Newest == Len(log)
Archives == {v \in 1..Newest : log[v].kind = "archive"}
\* The file of the archive: each one takes the one before it in, so there is one at a time.
Named == IF Archives = {} THEN {} ELSE {log[Max(Archives)].file}
Archived == Max({0} \union {f.upto : f \in Named})
Ended(a) == \E v \in 1..Newest : log[v].kind = "rollback" /\ log[v].by = a

Commit == [kind |-> "commit", by |-> "writer", file |-> [by |-> "writer", upto |-> 0]]

Init ==
  /\ log = <<Commit, Commit>>
  /\ emptied = {}
  /\ files = {}
  /\ records = {}
  /\ me = [a \in Archivers |-> [pc |-> "idle", upto |-> 0, knew |-> {}]]

Decide(d) == Newest < MaxVersion /\ log' = Append(log, d)

Write == Decide(Commit) /\ UNCHANGED <<emptied, files, records, me>>

\* It plans on a head, and writes its record before its file.
Begin(a) ==
  /\ me[a].pc = "idle"
  /\ \E upto \in (Archived + 1)..(Newest - 1) :
       me' = [me EXCEPT ![a] = [pc |-> "write", upto |-> upto, knew |-> Named]]
  /\ records' = records \union {a}
  /\ UNCHANGED <<log, emptied, files>>

Own(a) == [by |-> a, upto |-> me[a].upto]

WriteFile(a) ==
  /\ me[a].pc = "write"
  /\ files' = files \union {Own(a)}
  /\ me' = [me EXCEPT ![a].pc = "decide"]
  /\ UNCHANGED <<log, emptied, records>>

\* On each new head it looks for its rollback, and for another archive.
Beaten(a) == \/ Rule("end_looked_for") /\ Ended(a)
             \/ Rule("archive_replans") /\ Named # me[a].knew

Publish(a) ==
  /\ me[a].pc = "decide" /\ ~Beaten(a)
  /\ Decide([kind |-> "archive", by |-> a, file |-> Own(a)])
  /\ me' = [me EXCEPT ![a].pc = "empty"]
  /\ records' = records \ {a}
  /\ UNCHANGED <<emptied, files>>

\* Only it could ever publish the file, and it will not.
Withdraw(a) ==
  /\ me[a].pc = "decide" /\ Beaten(a)
  /\ files' = files \ {Own(a)}
  /\ records' = records \ {a}
  /\ me' = [me EXCEPT ![a].pc = "done"]
  /\ UNCHANGED <<log, emptied>>

\* Slots are emptied in order, by the archiver or by the next one.
Empty ==
  /\ LET upto == IF Rule("named_first") THEN Archived
                 ELSE Max({Archived} \union {f.upto : f \in files})
         todo == (1..upto) \ emptied
     IN  todo # {} /\ emptied' = emptied \union {Min(todo)}
  /\ UNCHANGED <<log, files, records, me>>

\* Recovery ends an archiver that it takes for dead: first the decision, then its files.
RollBack(a) ==
  /\ a \in records /\ ~Ended(a)
  /\ Decide([kind |-> "rollback", by |-> a, file |-> Commit.file])
  /\ UNCHANGED <<emptied, files, records, me>>

DeleteEnded(a) ==
  /\ Ended(a)
  /\ files' = {f \in files : f.by # a}
  /\ records' = records \ {a}
  /\ UNCHANGED <<log, emptied, me>>

\* A clean deletes a file that was merged into another: the decision that did so condemns it.
DeleteMerged ==
  /\ \E v \in Archives : log[v].file \notin Named /\ files' = files \ {log[v].file}
  /\ UNCHANGED <<log, emptied, records, me>>

\* Without the rule, a file that no decision names counts as left by a dead archiver.
DeleteUnnamed ==
  /\ ~Rule("body_kept")
  /\ \E f \in files : (\A v \in Archives : log[v].file # f) /\ files' = files \ {f}
  /\ UNCHANGED <<log, emptied, records, me>>

Next ==
  \/ Write \/ Empty \/ DeleteMerged \/ DeleteUnnamed
  \/ \E a \in Archivers :
       Begin(a) \/ WriteFile(a) \/ Publish(a) \/ Withdraw(a) \/ RollBack(a) \/ DeleteEnded(a)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------

\* The file that the table names is there.
NamedIsThere == Named \subseteq files

\* INV-01 The decision of an empty slot is in the archive.
BodyKept == emptied # {} => \E f \in Named \intersect files : f.upto >= Max(emptied)

\* An archiver is committed or rolled back, never both.
DecidedOnce == \A a \in Archivers : Cardinality({v \in 1..Newest : log[v].by = a}) <= 1
=============================================================================
