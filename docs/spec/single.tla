------------------------------ MODULE single ------------------------------
(* How a single-writer table admits a writer (RFC 0014). commit.tla describes  *)
(* commits; here a commit is one step, and so is a rollback. Any writer may be *)
(* taken for dead at any time, and any writer may stop for good.               *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Writers,  \* numbers: the smaller is the older instant, in any order of records
  Without   \* the rules that are left out, to show that each is needed

VARIABLES
  pc,       \* the state of each writer
  records,  \* the writers that have a pending record
  seen,     \* the records that each writer listed
  outcome,  \* the decision of each instant
  fence,    \* the writers that each one must end before it works
  base,     \* the number of commits when it was admitted
  log       \* commits in order: the writer and its base

vars == <<pc, records, seen, outcome, fence, base, log>>

Rule(name) == name \notin Without

Init ==
  /\ pc = [w \in Writers |-> IF Rule("record_first") THEN "new" ELSE "list"]
  /\ records = {}
  /\ seen = [w \in Writers |-> {}]
  /\ outcome = [w \in Writers |-> "none"]
  /\ fence = [w \in Writers |-> {}]
  /\ base = [w \in Writers |-> 0]
  /\ log = <<>>

Put(w) ==
  /\ pc[w] = "new"
  /\ records' = records \union {w}
  /\ pc' = [pc EXCEPT ![w] = IF Rule("record_first") THEN "list" ELSE "judge"]
  /\ UNCHANGED <<seen, outcome, fence, base, log>>

List(w) ==
  /\ pc[w] = "list"
  /\ seen' = [seen EXCEPT ![w] = records \ {w}]
  /\ pc' = [pc EXCEPT ![w] = IF Rule("record_first") \/ w \in records THEN "judge" ELSE "new"]
  /\ UNCHANGED <<records, outcome, fence, base, log>>

(* The head is read after the listing. A decided instant is not a rival. *)
Judge(w) ==
  /\ pc[w] = "judge"
  /\ LET rivals == {x \in seen[w] : outcome[x] = "none"}
     IN \E living \in SUBSET rivals :
          LET older == {x \in living : x < w}
          IN \/ /\ living = {} \/ (~Rule("older_waits") /\ older = {})
                /\ pc' = [pc EXCEPT ![w] = "fence"]
                /\ fence' = [fence EXCEPT ![w] = rivals \ living]
             \/ /\ living # {} /\ older = {}
                /\ pc' = [pc EXCEPT ![w] = "list"]
                /\ UNCHANGED fence
             \/ /\ living # {}
                /\ pc' = [pc EXCEPT ![w] = "refused"]
                /\ UNCHANGED fence
  /\ UNCHANGED <<records, seen, outcome, base, log>>

Fence(w) ==
  /\ pc[w] = "fence"
  /\ \E x \in fence[w] :
       /\ fence' = [fence EXCEPT ![w] = @ \ {x}]
       /\ outcome' =
            IF outcome[x] = "none" /\ Rule("dead_are_ended")
            THEN [outcome EXCEPT ![x] = "rolled back"] ELSE outcome
  /\ UNCHANGED <<pc, records, seen, base, log>>

Enter(w) ==
  /\ pc[w] = "fence" /\ fence[w] = {}
  /\ pc' = [pc EXCEPT ![w] = "works"]
  /\ base' = [base EXCEPT ![w] = Len(log)]
  /\ UNCHANGED <<records, seen, outcome, fence, log>>

Commit(w) ==
  /\ pc[w] = "works"
  /\ IF outcome[w] = "none"
     THEN /\ outcome' = [outcome EXCEPT ![w] = "committed"]
          /\ log' = Append(log, [who |-> w, base |-> base[w]])
     ELSE UNCHANGED <<outcome, log>>
  /\ pc' = [pc EXCEPT ![w] = "over"]
  /\ UNCHANGED <<records, seen, fence, base>>

(* A writer that gives way or changes nothing has staged nothing; or its instant is decided. *)
Leave(w) ==
  /\ pc[w] \in {"refused", "works", "over"}
  /\ records' = records \ {w}
  /\ pc' = [pc EXCEPT ![w] = "out"]
  /\ UNCHANGED <<seen, outcome, fence, base, log>>

Stop(w) ==
  /\ pc[w] \notin {"out", "stopped"}
  /\ pc' = [pc EXCEPT ![w] = "stopped"]
  /\ UNCHANGED <<records, seen, outcome, fence, base, log>>

(* A recoverer or an operator ends any writer that has a record. *)
Recover(w) ==
  /\ w \in records /\ outcome[w] = "none"
  /\ outcome' = [outcome EXCEPT ![w] = "rolled back"]
  /\ UNCHANGED <<pc, records, seen, fence, base, log>>

Next ==
  \E w \in Writers :
    Put(w) \/ List(w) \/ Judge(w) \/ Fence(w) \/ Enter(w) \/ Commit(w) \/ Leave(w) \/ Stop(w)
      \/ Recover(w)

Spec == Init /\ [][Next]_vars

(* No commit lies between the base of another commit and its version. *)
Alone == \A at \in 1..Len(log) : log[at].base = at - 1
===========================================================================
