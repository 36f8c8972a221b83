------------------------------ MODULE lineage ------------------------------
(* What a stream may apply after a restore (RFC 0018). A restore undoes commits *)
(* but changes no decision: the table contains the commits of its lineage, and  *)
(* the last token of the stream stays. One stream; each publish is one step.    *)
(* The stream may send any token at any time, also old and repeated ones.       *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Offsets,     \* numbers: where epochs may start and end; 0 is the beginning of the source
  MaxVersion,  \* the last version of a run
  Without      \* names of rules that are left out, to show that each is needed

Rule(name) == name \notin Without

VARIABLES
  log,         \* the decisions: create, commit, restore, replay
  told         \* replies "applied before": the token, and the head at that time

vars == <<log, told>>

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Newest == Len(log)
Free == Newest < MaxVersion

Nothing == [kind |-> "create", epoch |-> 0, start |-> 0, end |-> 0, to |-> 0]
IsCommit(u) == log[u].kind = "commit"

\* The versions whose commits the table contains. A restore of the version before a restore undoes it.
RECURSIVE Lineage(_)
Lineage(v) == IF v = 1 THEN {1}
              ELSE (IF log[v].kind = "restore" THEN Lineage(log[v].to) ELSE Lineage(v - 1)) \cup {v}
Commits(v) == {u \in Lineage(v) : IsCommit(u)}

At(u) == [epoch |-> log[u].epoch, end |-> log[u].end, at |-> u]
Beginning == [epoch |-> 0, end |-> 0, at |-> 1]
LastOfLineage(v) == IF Commits(v) = {} THEN Beginning ELSE At(Max(Commits(v)))

\* The position of the stream in the state, and the decision that it comes from. Only a replay sets it
\* back, and only to the last token that the table contains. It is a
\* decision that a restore may undo.
Replayed(v) ==
  IF ~Rule("replay_to_lineage") THEN [Beginning EXCEPT !.at = v]
  ELSE IF Rule("replay_can_be_undone") THEN [LastOfLineage(v) EXCEPT !.at = v]
  ELSE LastOfLineage(v)
RECURSIVE Position(_)
Position(v) ==
  CASE v = 1 -> Beginning
    [] IsCommit(v) -> At(v)
    [] log[v].kind = "replay" -> Replayed(v)
    [] log[v].kind = "restore" -> IF Rule("position_stays") THEN Position(v - 1) ELSE LastOfLineage(v)
    [] OTHER -> Position(v - 1)
Undone == Position(Newest).at \notin Lineage(Newest)

Append1(d) == Free /\ log' = Append(log, d) /\ UNCHANGED told

\* A token that continues the last one is applied, unless the last one was undone.
Apply ==
  LET last == Position(Newest)
  IN  /\ ~Undone \/ ~Rule("undone_raises")
      /\ \E end \in {x \in Offsets : x > last.end} :
           Append1([Nothing EXCEPT !.kind = "commit", !.epoch = last.epoch + 1, !.start = last.end, !.end = end])

\* A token that was applied before has its first result, if the table contains it. Otherwise: an error.
Repeat ==
  /\ \E u \in IF Rule("told_of_lineage") THEN Commits(Newest) ELSE {x \in 1..Newest : IsCommit(x)} :
       told' = told \cup {<<u, Newest>>}
  /\ UNCHANGED log

Restore == \E v \in 1..(Newest - 1) : Append1([Nothing EXCEPT !.kind = "restore", !.to = v])
Replay == Undone /\ Append1([Nothing EXCEPT !.kind = "replay"])

Init == log = <<Nothing>> /\ told = {}
Next == Apply \/ Repeat \/ Restore \/ Replay
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                             *)

\* The table contains each epoch at most once, in order.
OnceInOrder == \A u, v \in Commits(Newest) : u < v => log[u].epoch < log[v].epoch

\* Each epoch starts where the one before it in the table ended.
NoGap == \A v \in Commits(Newest) :
  LET earlier == {u \in Commits(Newest) : u < v}
      last == IF earlier = {} THEN Beginning ELSE At(Max(earlier))
  IN  log[v].start = last.end

\* An epoch is applied again only after a replay, and only if it was undone by then.
AppliedAgain == IsCommit(Newest) =>
  \A u \in {x \in 1..(Newest - 1) : IsCommit(x) /\ log[x].epoch = log[Newest].epoch} :
    \E r \in (u + 1)..(Newest - 1) : log[r].kind = "replay" /\ u \notin Lineage(r)

\* Whoever is told that its epoch was applied before can rely on it: the table contained its rows.
ToldIsTrue == \A t \in told : t[1] \in Lineage(t[2])
=============================================================================
