-------------------------------- MODULE trace --------------------------------
(***************************************************************************)
(* Is what a program really did a behaviour of the specification?          *)
(*                                                                         *)
(* A trace is what a store saw of the real code: one event for each change *)
(* of the stored files, in order, with the client that made it. It is      *)
(* accepted if some behaviour of commit.tla makes exactly these changes in *)
(* this order. TLC may add steps that change nothing stored (reading the   *)
(* head, a verdict). The two listings of a cleaner change nothing either,  *)
(* but a rule says when they happen, so they are events too.               *)
(***************************************************************************)
EXTENDS commit, TLC

CONSTANT Recorded \* the traces, a sequence of sequences of events

VARIABLES
  t, \* the number of the trace
  i  \* the next event

\* The steps of one client.  It may have two roles, such as a cleaner that also recovers.
Step(a) ==
  \/ a \in Writers /\ WriterStep(a)
  \/ a \in Recoverers /\ Suspect(a)
  \/ a \in Writers \cup Recoverers /\ RollStep(a)
  \/ a \in Cleaners /\ CleanerStep(a)
  \/ a \in Readers /\ ReaderStep(a)

Marks(fs) == {<<f.by, f.at>> : f \in fs}

\* Exactly the change that an event records.
Effect(e) ==
  \/ /\ e.do = "begin"
     /\ <<e.who, "begin">> \in records' \ records
     /\ me'[e.who].v0 = e.version
  \/ /\ e.do = "stage"
     /\ Marks(files' \ files) = {<<e.who, e.place>>}
  \/ /\ e.do = "publish"
     /\ Len(log) + 1 = e.version /\ Len(log') = e.version
     /\ LET d == log'[e.version]
        IN  /\ d.kind = e.kind /\ d.by = e.who /\ d.base = e.base /\ d.ends = e.ends
            /\ d.buckets = e.places /\ Marks(d.drops) = e.drops /\ Marks(d.condemns) = e.condemns
  \/ /\ e.do = "unlink"
     /\ Marks(files \ files') = {<<e.of, e.place>>}
  \/ /\ e.do = "forget"
     /\ <<e.of, "begin">> \in records \ records'
  \/ /\ e.do = "lease"
     /\ leases' \ leases = {<<e.who, e.version>>}
  \/ /\ e.do = "release"
     /\ \E x \in leases \ leases' : x[1] = e.who

Listing == [records |-> "list", leases |-> "list leases"]

\* A listing outside of a clean is ignored.
Listed(e) ==
  \/ e.who \in Cleaners /\ me[e.who].pc = Listing[e.what] /\ CleanerStep(e.who)
  \/ UNCHANGED vars

Follows(e) ==
  \/ e.do = "told" /\ me[e.who].told = e.what /\ UNCHANGED vars
  \/ e.do = "list" /\ Listed(e)
  \/ e.do \notin {"told", "list"} /\ Step(e.who) /\ Effect(e)

Silent ==
  /\ UNCHANGED <<slots, records, files, leases, kept>>
  /\ Next
  /\ \A c \in Cleaners : me[c].pc \in {"list", "list leases"} => me'[c] = me[c]

\* TLC's registers hold, for each trace, how far it was followed, and the trace itself: if TLC reads
\* the constant, it builds all of it again each time.
ASSUME \A n \in 1..Len(Recorded) : TLCSet(2 * n - 1, 0) /\ TLCSet(2 * n, Recorded[n])
Far(n) == TLCGet(2 * n - 1)
Trace(n) == TLCGet(2 * n)

TraceInit ==
  /\ Init
  /\ t \in 1..Len(Recorded)
  /\ i = 1

TraceNext ==
  /\ i <= Len(Trace(t))
  /\ t' = t
  /\ \/ Follows(Trace(t)[i]) /\ i' = i + 1
     \/ Silent /\ i' = i

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, t, i>>

\* Print how far each trace can be followed.  A trace whose end is reached is accepted.
Reached == IF i > Far(t) THEN TLCSet(2 * t - 1, i) /\ PrintT(<<"reached", t, i>>) ELSE TRUE
=============================================================================
