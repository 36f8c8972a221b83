------------------------------- MODULE commit -------------------------------
(***************************************************************************)
(* How many writers share one table without losing a row.                  *)
(*                                                                         *)
(* This is the protocol of protocol.md, small enough for TLC to try every  *)
(* order of every step. Read it from top to bottom: the storage, the       *)
(* definitions, the steps of each actor in their order, and finally the    *)
(* invariants of invariants.md, by their ids.                              *)
(*                                                                         *)
(* Four remarks:                                                           *)
(*                                                                         *)
(* A model chooses the actors. Each file in models/ says which actors take *)
(* part and how many versions there may be. Other actors take no step.     *)
(*                                                                         *)
(* A crash needs no step of its own. TLC checks every intermediate state,  *)
(* and an actor that never moves again is a crashed one. For the same      *)
(* reason there is no heartbeat: a recoverer may take any instant for dead *)
(* at any time, which is what a late heartbeat causes. There is no lock    *)
(* either: it gives order and fairness, and no step needs it.              *)
(*                                                                         *)
(* A read pin is called a lease here, after the directory of its file.     *)
(*                                                                         *)
(* A rule can be left out. Every rule that safety depends on has a name in *)
(* Rules below and its place in the text, Rule("..."). The check of this   *)
(* specification leaves out each rule in turn, and TLC must then find a    *)
(* broken invariant. So every rule is needed.                              *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Writers,     \* each makes one attempt: one instant, whose nonce is the writer
  Services,    \* writers that only rewrite data: compaction, clustering
  Recoverers,  \* end instants of others that they take for dead
  Cleaners,    \* condemn and delete files that no readable version needs
  Readers,     \* read a version under a lease
  Keepers,     \* write and collect checkpoints, archive old decisions
  Operators,   \* make savepoints and restore

  Buckets,     \* the places that are written; each is its own partition
  Past,        \* how many versions the table has at the start, 1 to 3
  MaxVersion,  \* the last version
  Redos,       \* how often a writer may stage buckets again that others wrote first

  PutIfAbsent, \* whether the store has it; if not, a lock service decides the slots
  LostReplies, \* whether the reply of a publish may get lost
  Stale,       \* whether clients may know only an old version when they begin
  FalseDeath,  \* whether recoverers may take live writers for dead
  PlacesKnown, \* whether writers know at begin which places they will write
  AnyHorizon,  \* whether a clean may keep more than the newest version readable
  Grace,       \* whether a clean condemns only what an earlier one let go of, and operators undo cleans
  SameToken,   \* whether all writers have the same epoch of one stream
  OtherRows,   \* writers whose rows for that epoch differ from those of the others
  Clocks,      \* the times of the store's clock at a publish: it may be set forward and back
  Without      \* the rules left out, to show that they are needed

Rules == {
  "rollback_in_slots",      \* rollbacks contend for the same slots as commits
  "own_time",               \* the time of a completed instant is not used again
  "own_rollback_from_v0",   \* a writer looks for its own rollback from v0, not from the base
  "base_after_record",      \* the base is read after the pending record is written
  "list_after_decision",    \* leases and records are listed after the clean's decision
  "decision_before_delete", \* nothing is deleted before its decision is published
  "names_stay",             \* archiving empties slots and never removes their names
  "read_back",              \* a lost reply is resolved by reading the slot back
  "bucket_unit",            \* conflicts are judged by bucket, not by file
  "tokens_stay",            \* a restore does not undo tokens
  "rows_compared",          \* an applied epoch is a replay only with the same rows
  "previous_checkpoint",    \* a checkpoint is deleted only after two newer ones were read back
  "nothing_staged",         \* only an instant without a file ends without a decision
  "announce_first",         \* a place is named in a record before a file appears in it
  "archive_included",       \* a search for a decision includes the archive
  "archive_behind_both",    \* only slots before both kept checkpoints are emptied
  "clean_replans",          \* a clean that loses its slot plans again
  "final_before_delete",    \* a clean condemns only what an earlier clean let go of, after the grace
  "undo_before_final",      \* an undo takes back only what is not final
  "savepoints_kept",        \* a clean keeps what a savepoint needs
  "lease_first",            \* a reader writes its lease before it reads the head
  "missing_is_error",       \* a missing file is an error, never fewer rows
  "services_yield",         \* a writer does not fail because of a service
  "times_grow",             \* a decision is completed later than the one before, on any clock
  "settled",                \* a time can end a change read only if a commit is as late
  "arbitrate",              \* without put-if-absent, the lock service decides who wins a slot
  "copy_first"              \* a lent slot is copied to the store before the next is taken
}
Rule(name) == name \notin Without

ASSUME /\ Without \subseteq Rules
       /\ Services \subseteq Writers
       /\ OtherRows \subseteq Writers
       /\ Past \in 1..3

VARIABLES
  \* On storage.
  log,         \* the decision of each version, in its slot or in the archive
  present,     \* versions whose slot exists in the store
  emptied,     \* versions whose decision is only in the archive
  records,     \* pending records: <<instant, "begin">>, and <<instant, place>>
  files,       \* data files
  leases,      \* <<reader, version>>
  checkpoints, \* versions with a checkpoint
  damaged,     \* checkpoints that cannot be read
  \* Elsewhere.
  wire,        \* writers whose publish may still arrive at the store, without a reply
  me           \* what each actor knows

slots == <<log, present, emptied>>
kept  == <<checkpoints, damaged>>
vars  == <<log, present, emptied, records, files, leases, checkpoints, damaged, wire, me>>

Actors == Writers \cup Recoverers \cup Cleaners \cup Readers \cup Keepers \cup Operators

-----------------------------------------------------------------------------
(* Definitions.                                                            *)

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

File(w, b, n) == [by |-> w, at |-> b, n |-> n]

\* A decision.  Every kind has all fields; unused ones are empty.
Nothing == [kind |-> "none", by |-> "none", time |-> 0, done |-> 0, base |-> 0, buckets |-> {}, adds |-> {},
            drops |-> {}, token |-> "none", rows |-> "none", ends |-> {}, places |-> {}, condemns |-> {},
            gone |-> {}, upto |-> 0, final |-> 0]

\* The table's past: created empty, one file written, that file replaced.
Bucket0 == CHOOSE b \in Buckets : TRUE
History == <<
  [Nothing EXCEPT !.kind = "create", !.time = 1, !.done = 1],
  [Nothing EXCEPT !.kind = "commit", !.by = "past", !.time = 2, !.done = 2, !.base = 1, !.buckets = {Bucket0},
                  !.adds = {File("past", Bucket0, 1)}, !.token = "past 1"],
  [Nothing EXCEPT !.kind = "commit", !.by = "past", !.time = 3, !.done = 3, !.base = 2, !.buckets = {Bucket0},
                  !.adds = {File("past", Bucket0, 2)}, !.drops = {File("past", Bucket0, 1)},
                  !.token = "past 2"]>>

\* The state at a version is a fold over the decisions up to it.
Live(v) == {f \in UNION {log[u].adds : u \in 1..v} :
              \E u \in 1..v : f \in log[u].adds /\ \A x \in (u + 1)..v : f \notin log[x].drops}
Ended(f, v) == Max({u \in 1..v : f \in log[u].drops})
Dropped(v) == (UNION {log[u].drops : u \in 1..v}) \ Live(v)
Condemned(v) == UNION {log[u].condemns : u \in 1..v}
Noted(v) == UNION {log[u].gone : u \in 1..v} \* condemned files that a decision lists as deleted
\* The horizon is the oldest readable version. No undo makes a version before Final readable.
Final(v) == Max({1} \cup {log[u].final : u \in 1..v})
TakenBack(u, v) == \E x \in (u + 1)..v : log[x].kind = "undo" /\ log[x].upto <= u
Cleans(v) == {u \in 1..v : log[u].kind = "clean" /\ ~TakenBack(u, v)}
Raised(v) == {u \in Cleans(v) : log[u].upto > Final(v)}
Horizon(v) == Max({IF Rule("undo_before_final") THEN Final(v) ELSE 1} \cup {log[u].upto : u \in Cleans(v)})
Savepoints(v) == {log[u].upto : u \in {x \in 1..v : log[x].kind = "savepoint"}}
NewestTime(v) == Max({log[u].time : u \in 1..v})
\* The newest version that was completed by a time.
VersionAt(t, v) == Max({0} \cup {u \in 1..v : log[u].done <= t})
IsWrite(d) == d.kind \in {"commit", "service"}

\* A token is known for ever: an epoch that a restore undid may not be applied again.
Undone(u, v) == \E r \in (u + 1)..v : log[r].kind = "restore" /\ log[r].upto < u
Tokens(v) == {log[u].token : u \in {x \in 1..v :
                 IsWrite(log[x]) /\ (Rule("tokens_stay") \/ ~Undone(x, v))}}

\* The digest of an epoch's rows also stays in the state for ever.
RowsOf(t, v) == {log[u].rows : u \in {x \in 1..v : IsWrite(log[x]) /\ log[x].token = t}}

Whole == checkpoints \ damaged

\* The head that a client finds if it knows version k.  The first missing slot ends the search.  An
\* emptied slot means that its decision is archived: start from a checkpoint.
HeadFrom(k) ==
  LET from == IF k + 1 \in emptied THEN Max(Whole \cup {k}) ELSE k
  IN  CHOOSE h \in from..Len(log) : (from + 1)..h \subseteq present /\ h + 1 \notin present

\* What a client finds about an instant in the decisions of (from, to].
Reads(u) == Rule("archive_included") \/ u \notin emptied
RolledBack(i, from, to) == \/ \E u \in (from + 1)..to : Reads(u) /\ i \in log[u].ends
                           \/ <<i, "rollback">> \in records \* only if rollbacks have no slot
Committed(i, from, to) == \E u \in (from + 1)..to : Reads(u) /\ IsWrite(log[u]) /\ log[u].by = i

Pending == {x[1] : x \in {y \in records : y[2] # "rollback"}}
Places(recs) == {x[2] : x \in recs} \ {"begin", "rollback"}
RecordsOf(i) == {x \in records : x[1] = i /\ x[2] # "rollback"}

\* The first record contains v0.  Without it everything is protected.
RecordV0(i) == IF <<i, "begin">> \in records THEN me[i].v0 ELSE 1

\* A client knows a version that was the head at some time.
Known == IF Stale THEN 1..HeadFrom(1) ELSE {HeadFrom(1)}

-----------------------------------------------------------------------------
(* Publish: the one atomic step. Whatever completes an instant takes the   *)
(* slot after the head that its publisher worked from. A slot is won once. *)

CanPut(v) == v <= MaxVersion /\ IF PutIfAbsent THEN v \notin present ELSE v > Len(log)

\* Other requests on their way to this slot can no longer win it, so they are dropped.  The
\* completion time is that of the store's clock, but later than the one before.
Put(v, d) ==
  /\ CanPut(v)
  /\ \E c \in Clocks :
       LET done == IF Rule("times_grow") THEN Max({c, log[v - 1].done + 1}) ELSE c
           timed == [d EXCEPT !.done = done]
       IN  log' = IF v <= Len(log) THEN [log EXCEPT ![v] = timed] ELSE Append(log, timed)
  /\ present' = IF PutIfAbsent THEN present \cup {v} ELSE present
  /\ wire' = {w \in wire : me[w].seen + 1 # v}
  /\ UNCHANGED emptied

\* A store without put-if-absent: the body is written under its own name.  The lock service
\* creates an entry for the version that points to it; this is atomic, and is Put above.  Any
\* client may finish the copy into the slot.
FinishCopy(a) ==
  /\ ~PutIfAbsent
  /\ LET v == me[a].seen + 1
     IN  /\ v <= Len(log) /\ v \notin present
         /\ me[a].pc \in {"ready", "unsure", "rollback"}
         /\ IF Rule("copy_first") \/ me[a].pc = "unsure"
              THEN present' = present \cup {v} /\ UNCHANGED me
              ELSE me' = [me EXCEPT ![a].seen = v] /\ UNCHANGED present
  /\ UNCHANGED <<log, emptied, records, files, leases, kept, wire>>

-----------------------------------------------------------------------------
(* A writer. idle -> look -> stage -> ready -> won -> end, or from ready   *)
(* to unsure, or to roll when it gives up.                                 *)

Token(w) == IF SameToken THEN "token" ELSE w
Rows(w) == IF w \in OtherRows THEN "other rows" ELSE "rows"

\* The first result for the same rows; an error for other rows.
Seen(w, h) == IF Rule("rows_compared") /\ Rows(w) \notin RowsOf(Token(w), h)
              THEN "failed" ELSE "applied before"
OwnRecords(w) == {<<w, "begin">>} \cup {<<w, b>> : b \in me[w].named}

\* Begin: write the pending record.  It names v0, the version that the client knows.
Begin(w) ==
  /\ me[w].pc = "idle"
  /\ Rule("base_after_record")
  /\ \E k \in Known : \E wants \in (SUBSET Buckets) \ {{}} :
       LET named == IF PlacesKnown THEN wants ELSE {}
       IN  /\ records' = records \cup {<<w, "begin">>} \cup {<<w, b>> : b \in named}
           /\ me' = [me EXCEPT ![w].pc = "look", ![w].v0 = k, ![w].wants = wants,
                               ![w].named = named]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

\* Then read the head, once: it is the base.  A recoverer may have rolled the instant back, and
\* the batch may be applied already: look for both from v0.
Look(w) ==
  /\ me[w].pc = "look"
  /\ LET h == HeadFrom(me[w].v0)
     IN  me' = IF Rule("own_rollback_from_v0") /\ RolledBack(w, me[w].v0, h)
               THEN [me EXCEPT ![w].pc = "sweep", ![w].told = "failed", ![w].aim = w,
                               ![w].saw = OwnRecords(w)]
               ELSE IF Token(w) \in Tokens(h)
               THEN [me EXCEPT ![w].pc = "roll", ![w].told = Seen(w, h), ![w].aim = w,
                               ![w].saw = OwnRecords(w)]
               ELSE [me EXCEPT ![w].pc = "stage", ![w].base = h, ![w].seen = h]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* The wrong order, to show that the rule is needed: base first, record second.
LookTooEarly(w) ==
  /\ me[w].pc = "idle"
  /\ ~Rule("base_after_record")
  /\ \E wants \in (SUBSET Buckets) \ {{}} :
       LET h == HeadFrom(1)
       IN  me' = [me EXCEPT ![w].pc = "begin late", ![w].v0 = h, ![w].base = h, ![w].seen = h,
                            ![w].wants = wants, ![w].named = wants]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

BeginTooLate(w) ==
  /\ me[w].pc = "begin late"
  /\ records' = records \cup OwnRecords(w)
  /\ me' = [me EXCEPT ![w].pc = "stage"]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

\* A record names a place before a file appears in it.  So recovery knows where to look for the
\* files of a dead writer and never lists the table.
Announce(w) ==
  /\ me[w].pc = "stage"
  /\ Rule("announce_first")
  /\ \E b \in me[w].wants \ me[w].named :
       /\ records' = records \cup {<<w, b>>}
       /\ me' = [me EXCEPT ![w].named = @ \cup {b}]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

\* Stage: write files under final names that contain the nonce.  No reader sees them.
Stage(w) ==
  /\ me[w].pc = "stage"
  /\ \E b \in me[w].wants \ {f.at : f \in me[w].staged} :
       LET f == File(w, b, me[w].round)
           staged == me[w].staged \cup {f}
       IN  /\ b \in me[w].named \/ ~Rule("announce_first")
           /\ files' = files \cup {f}
           /\ me' = [me EXCEPT ![w].staged = staged,
                 ![w].pc = IF {x.at : x \in staged} = me[w].wants THEN "ready" ELSE "stage"]
  /\ UNCHANGED <<slots, records, leases, kept, wire>>

\* Conflicts.  The unit is the bucket: two writers that find a bucket empty share no file, and
\* both would write its first one.  A restore conflicts with every write.
Replaced(w) == {f \in Live(me[w].base) : f.at \in me[w].wants}
Meets(w, u) ==
  \/ log[u].kind = "restore"
  \/ IsWrite(log[u]) /\ IF Rule("bucket_unit") THEN log[u].buckets \cap me[w].wants # {}
                                               ELSE log[u].drops \cap Replaced(w) # {}

GiveUp(w, told) == [me EXCEPT ![w].pc = "roll", ![w].told = told, ![w].aim = w,
                              ![w].saw = OwnRecords(w)]

\* Stage again, on the new head, the buckets that others wrote first.
Redo(w, h, met) ==
  LET again == me[w].wants \cap UNION {log[u].buckets : u \in met}
  IN  [me EXCEPT ![w].pc = "stage", ![w].base = h, ![w].seen = h, ![w].round = @ + 1,
                 ![w].staged = {f \in @ : f.at \notin again}]

\* Validate: the slot after the known head is taken.  Check every decision up to the new head.
Validate(w) ==
  /\ me[w].pc = "ready"
  /\ HeadFrom(me[w].seen) > me[w].seen
  /\ LET h == HeadFrom(me[w].seen)
         met == {u \in (me[w].seen + 1)..h : Meets(w, u)}
         restored == \E u \in met : log[u].kind = "restore"
         harmless == w \notin Services /\ \A u \in met : log[u].kind = "service"
         may_redo == me[w].round <= Redos /\ w \notin Services /\ ~restored
     IN  IF RolledBack(w, me[w].seen, h)
         THEN me' = [me EXCEPT ![w].pc = "sweep", ![w].told = "failed", ![w].aim = w,
                               ![w].saw = OwnRecords(w)]
         ELSE IF Token(w) \in Tokens(h) /\ ~Committed(w, me[w].seen, h)
         THEN me' = GiveUp(w, Seen(w, h))
         ELSE IF met = {} THEN me' = [me EXCEPT ![w].seen = h]
         ELSE \/ may_redo /\ me' = Redo(w, h, met)
              \/ ~(harmless /\ Rule("services_yield")) /\ me' = GiveUp(w, "failed")
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* The instant's time was chosen at begin: after the newest known then.  Clocks may agree, so
\* another instant may have completed with it.  Then take the next free one.
Taken(w) == {log[u].time : u \in {x \in (me[w].v0 + 1)..me[w].seen : Reads(x)}}
TimeOf(w) ==
  LET first == NewestTime(me[w].v0) + 1
  IN  IF Rule("own_time") THEN Min({t \in first..(first + Len(log)) : t \notin Taken(w)})
                          ELSE first

\* Files that were staged again are dropped with those that the commit replaces.
Decision(w) ==
  [Nothing EXCEPT
     !.kind = IF w \in Services THEN "service" ELSE "commit", !.by = w, !.time = TimeOf(w),
     !.base = me[w].base, !.buckets = me[w].wants, !.adds = me[w].staged, !.token = Token(w),
     !.rows = Rows(w),
     !.drops = Replaced(w) \cup {f \in files : f.by = w /\ f \notin me[w].staged}]

\* Publish in the slot after the known head.  The reply may get lost: then the writer is unsure,
\* and tries the same again or reads back.
Publish(w) ==
  /\ me[w].pc \in {"ready", "unsure"}
  /\ PutIfAbsent \/ Rule("arbitrate")
  /\ Put(me[w].seen + 1, Decision(w))
  /\ \/ PutIfAbsent /\ me' = [me EXCEPT ![w].pc = "won", ![w].told = "committed"]
     \/ LostReplies /\ me' = [me EXCEPT ![w].pc = "unsure"]
     \/ ~PutIfAbsent /\ me' = [me EXCEPT ![w].pc = "unsure"] \* until the copy is made
  /\ UNCHANGED <<records, files, leases, kept>>

\* The request may be slow: it arrives long after the writer stopped waiting, or never.
PublishSlowly(w) ==
  /\ LostReplies
  /\ me[w].pc = "ready"
  /\ CanPut(me[w].seen + 1)
  /\ wire' = wire \cup {w}
  /\ me' = [me EXCEPT ![w].pc = "unsure"]
  /\ UNCHANGED <<slots, records, files, leases, kept>>

Arrive(w) ==
  /\ w \in wire
  /\ Put(me[w].seen + 1, Decision(w))
  /\ UNCHANGED <<records, files, leases, kept, me>>

\* The slot has our decision or another one, or there is no answer.  Without an answer the
\* outcome is unknown, and nothing is deleted.
ReadBack(w) ==
  /\ me[w].pc = "unsure"
  /\ LET v == me[w].seen + 1
     IN  IF ~Rule("read_back") THEN me' = GiveUp(w, "failed")
         ELSE \/ /\ v \in present
                 /\ me' = [me EXCEPT ![w].pc = IF log[v].by = w THEN "won" ELSE "ready",
                                     ![w].told = IF log[v].by = w THEN "committed" ELSE @]
              \/ me' = [me EXCEPT ![w].pc = "end", ![w].told = "unknown"]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* Without put-if-absent and without arbitration: take a lock, look, and put.  The lock may be
\* lost between the look and the put.
LookThenPut(w) ==
  /\ ~PutIfAbsent /\ ~Rule("arbitrate")
  /\ LET v == me[w].seen + 1
     IN  \/ /\ me[w].pc = "ready" /\ v \notin present /\ v <= MaxVersion
            /\ me' = [me EXCEPT ![w].pc = "looked"]
            /\ UNCHANGED <<slots, wire>>
         \/ /\ me[w].pc = "looked"
            /\ log' = IF v <= Len(log) THEN [log EXCEPT ![v] = Decision(w)]
                                       ELSE Append(log, Decision(w))
            /\ present' = present \cup {v}
            /\ me' = [me EXCEPT ![w].pc = "won", ![w].told = "committed"]
            /\ UNCHANGED <<emptied, wire>>
  /\ UNCHANGED <<records, files, leases, kept>>

\* Finish: remove the records.  If the process dies before, the commit still holds.
Finish(w) ==
  /\ me[w].pc = "won"
  /\ records' = records \ OwnRecords(w)
  /\ me' = [me EXCEPT ![w].pc = "end"]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

\* The write was refused before it named a file, or it changes nothing.  There is nothing to decide,
\* and the records are removed.  A recoverer that saw them may still publish a harmless rollback.
Untouched(w) == me[w].staged = {} /\ me[w].round = 1
Leave(w) ==
  /\ \/ me[w].pc = "stage"
     \/ me[w].pc = "roll" /\ me[w].aim = w
  /\ Untouched(w) \/ ~Rule("nothing_staged")
  /\ records' = records \ OwnRecords(w)
  /\ me' = [me EXCEPT ![w].pc = "end",
                      ![w].told = IF me[w].pc = "stage" THEN "nothing" ELSE @]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

\* Only models in which recoverers are never wrong need to know which writers are dead.
Crash(w) ==
  /\ ~FalseDeath
  /\ me[w].pc \notin {"idle", "end", "dead"}
  /\ me' = [me EXCEPT ![w].pc = "dead"]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

-----------------------------------------------------------------------------
(* Ending an instant: a recoverer ends the instant of another client, a    *)
(* writer that gives up ends its own. roll -> rollback -> sweep -> forget. *)
(* Any number of actors may do it at once, and each may stop half way:     *)
(* while there are records, the next one repeats the work.                 *)

Suspect(r) ==
  /\ me[r].pc = "idle"
  /\ \E i \in Pending :
       /\ FalseDeath \/ me[i].pc = "dead"
       /\ me' = [me EXCEPT ![r].pc = "roll", ![r].aim = i, ![r].v0 = RecordV0(i),
                           ![r].saw = RecordsOf(i)]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* Undecided: it has no decision after its v0.  Committed: only the records are left.
RollLook(a) ==
  /\ me[a].pc = "roll"
  /\ LET h == HeadFrom(me[a].v0)
         i == me[a].aim
     IN  me' = [me EXCEPT ![a].seen = h,
                 ![a].pc = IF RolledBack(i, me[a].v0, h) THEN "sweep"
                           ELSE IF Committed(i, me[a].v0, h) THEN "forget"
                           ELSE IF Rule("decision_before_delete") THEN "rollback"
                           ELSE "sweep"]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* A rollback takes a slot, like a commit.  So an instant that was rolled back can never commit,
\* and a committed one can never be rolled back: the loser sees the other decision.  The same
\* decision may end other instants that the recoverer takes for dead.  The next recoverer finds
\* them rolled back and removes their files and records.
Others(a) ==
  IF a \notin Recoverers THEN {}
  ELSE {i \in Pending \ {me[a].aim} :
          /\ FalseDeath \/ me[i].pc = "dead"
          /\ ~RolledBack(i, RecordV0(i), me[a].seen) /\ ~Committed(i, RecordV0(i), me[a].seen)}

RollPublish(a) ==
  /\ me[a].pc = "rollback"
  /\ IF Rule("rollback_in_slots")
     THEN /\ \E more \in SUBSET Others(a) :
               Put(me[a].seen + 1,
                   [Nothing EXCEPT !.kind = "rollback", !.by = a,
                      !.time = NewestTime(me[a].seen) + 1, !.base = me[a].seen,
                      !.ends = {me[a].aim} \cup more,
                      !.places = Places(me[a].saw \cup UNION {RecordsOf(i) : i \in more})])
          /\ UNCHANGED records
     ELSE records' = records \cup {<<me[a].aim, "rollback">>} /\ UNCHANGED <<slots, wire>>
  /\ me' = [me EXCEPT ![a].pc = "sweep"]
  /\ UNCHANGED <<files, leases, kept>>

RollAgain(a) ==
  /\ me[a].pc = "rollback"
  /\ HeadFrom(me[a].seen) > me[a].seen
  /\ me' = [me EXCEPT ![a].pc = "roll"]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* Only now delete files, and only those with the instant's nonce in their names.
Sweep(a) ==
  /\ me[a].pc = "sweep"
  /\ LET doomed == {f \in files : f.by = me[a].aim /\ f.at \in Places(me[a].saw)}
     IN  \/ /\ doomed = {}
            /\ me' = [me EXCEPT ![a].pc = "forget"]
            /\ UNCHANGED files
         \/ /\ \E f \in doomed : files' = files \ {f}
            /\ UNCHANGED me
  /\ UNCHANGED <<slots, records, leases, kept, wire>>

\* Remove the records last, because they lead recovery to the instant.
Fresh(pc) == [pc |-> pc, v0 |-> 1, base |-> 1, seen |-> 1, wants |-> {}, named |-> {},
              staged |-> {}, round |-> 1, told |-> "none", aim |-> "none", saw |-> {},
              upto |-> 0, kind |-> "none", listed |-> {}, result |-> {}]

Forget(a) ==
  /\ me[a].pc = "forget"
  /\ records' = records \ me[a].saw
  /\ me' = IF a \in Writers THEN [me EXCEPT ![a].pc = "end"] ELSE [me EXCEPT ![a] = Fresh("idle")]
  /\ UNCHANGED <<slots, files, leases, kept, wire>>

-----------------------------------------------------------------------------
(* A cleaner. idle -> decide -> list -> delete -> idle. It decides first,  *)
(* then lists leases and records, and deletes last. It sees every base and *)
(* lease that was taken before the decision. An actor that takes one later *)
(* sees the decision.                                                      *)

OfRecords == {<<i, RecordV0(i)>> : i \in Pending}
OfLeases == leases

InSavepoint(f, v) == Rule("savepoints_kept") /\ \E s \in Savepoints(v) : f \in Live(s)

\* Condemned at a horizon: files that ended there or before, and that no savepoint needs.
Condemnable(v, horizon) ==
  {f \in Dropped(v) : Ended(f, v) <= horizon /\ ~InSavepoint(f, v)} \ Condemned(v)

\* With a grace, only a horizon that an earlier clean raised, and that no undo has taken back, can
\* become final; without one, the clean's own does. How long a grace lasts does not matter.
Finals(h, horizon) == IF Grace THEN {Final(h)} \cup {log[u].upto : u \in Raised(h)} ELSE {horizon}

\* Files that others condemned may be deleted without a new decision.  A decision moves the
\* horizon, condemns files, and lists which condemned files are deleted.
Horizons(h) == IF AnyHorizon THEN Horizon(h)..h ELSE {h}
CleanPlan(c) ==
  /\ me[c].pc = "idle"
  /\ LET h == HeadFrom(1)
     IN  \E horizon \in Horizons(h) : \E final \in Finals(h, horizon) :
           LET doomed == Condemnable(h, IF Rule("final_before_delete") THEN final ELSE horizon)
               news == \/ doomed # {} \/ ~(Condemned(h) \ files \subseteq Noted(h))
                       \/ (AnyHorizon \/ Grace) /\ horizon > Horizon(h)
               decided == IF Rule("decision_before_delete") THEN "decide" ELSE "delete"
           IN  \E next \in {"list"} \cup (IF news THEN {decided} ELSE {}) :
                 me' = [me EXCEPT ![c].pc = next, ![c].seen = h, ![c].upto = horizon,
                          ![c].base = final, ![c].staged = doomed,
                          ![c].listed = IF Rule("list_after_decision") /\ next # "delete"
                                        THEN {} ELSE OfRecords \cup OfLeases]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

CleanPublish(c) ==
  /\ me[c].pc = "decide"
  /\ Put(me[c].seen + 1,
         [Nothing EXCEPT !.kind = "clean", !.by = c, !.time = NewestTime(me[c].seen) + 1,
            !.base = me[c].seen, !.upto = me[c].upto, !.final = me[c].base, !.condemns = me[c].staged,
            !.gone = Condemned(me[c].seen) \ files])
  /\ me' = [me EXCEPT ![c].pc = IF Rule("list_after_decision") THEN "list" ELSE "delete",
                      ![c].seen = @ + 1]
  /\ UNCHANGED <<records, files, leases, kept>>

\* The slot is taken, perhaps by a savepoint or restore that needs a file of the plan.
CleanAgain(c) ==
  /\ me[c].pc = "decide"
  /\ HeadFrom(me[c].seen) > me[c].seen
  /\ me' = IF Rule("clean_replans") THEN [me EXCEPT ![c] = Fresh("idle")]
                                    ELSE [me EXCEPT ![c].seen = HeadFrom(me[c].seen)]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

CleanListRecords(c) ==
  /\ me[c].pc = "list"
  /\ me' = [me EXCEPT ![c].pc = "list leases", ![c].listed = OfRecords]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

CleanListLeases(c) ==
  /\ me[c].pc = "list leases"
  /\ me' = [me EXCEPT ![c].pc = "delete", ![c].listed = @ \cup OfLeases]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* A record or lease at version v needs every file that ended after v.  If it was listed and has
\* gone since, it needs nothing.  Files that must be kept stay condemned for a later run.  Late
\* files of rolled-back instants are deleted too: their names prove whose they are.
NeededFrom(c) ==
  Min({MaxVersion + 1} \cup {x[2] : x \in {y \in me[c].listed : y[1] \in Pending \/ y \in leases}})
Late(v) == {f \in files : \E u \in 1..v : f.by \in log[u].ends /\ f.at \in log[u].places}
Deletable(c) ==
  LET v == me[c].seen
      condemned == IF Rule("decision_before_delete") THEN Condemned(v) ELSE me[c].staged
  IN  {f \in files \cap condemned : f \notin Dropped(v) \/ Ended(f, v) <= NeededFrom(c)}
      \cup Late(v)

CleanDelete(c) ==
  /\ me[c].pc = "delete"
  /\ \/ /\ \E f \in Deletable(c) : files' = files \ {f}
        /\ UNCHANGED me
     \/ /\ me' = [me EXCEPT ![c] = Fresh("idle")]
        /\ UNCHANGED files
  /\ UNCHANGED <<slots, records, leases, kept, wire>>

-----------------------------------------------------------------------------
(* A reader. idle -> pin -> reading -> idle. It writes its lease first,    *)
(* then reads the head and the horizon.                                    *)

Lease(d) ==
  /\ me[d].pc = "idle"
  /\ Rule("lease_first")
  /\ \E k \in Known :
       /\ leases' = leases \cup {<<d, k>>}
       /\ me' = [me EXCEPT ![d].pc = "pin", ![d].v0 = k]
  /\ UNCHANGED <<slots, records, files, kept, wire>>

\* The newest version, or an older one that is not before the horizon (time travel).
Pin(d) ==
  /\ me[d].pc = "pin"
  /\ LET h == HeadFrom(me[d].v0)
     IN  \E v \in {h, me[d].v0} :
           IF v >= Horizon(h)
           THEN me' = [me EXCEPT ![d].pc = "reading", ![d].base = v] /\ UNCHANGED leases
           ELSE me' = [me EXCEPT ![d] = Fresh("idle")] /\ leases' = leases \ {<<d, me[d].v0>>}
  /\ UNCHANGED <<slots, records, files, kept, wire>>

PinTooEarly(d) ==
  /\ ~Rule("lease_first")
  /\ \/ /\ me[d].pc = "idle"
        /\ LET h == HeadFrom(1)
           IN  \E v \in Horizon(h)..h : me' = [me EXCEPT ![d].pc = "lease late", ![d].v0 = v]
        /\ UNCHANGED leases
     \/ /\ me[d].pc = "lease late"
        /\ leases' = leases \cup {<<d, me[d].v0>>}
        /\ me' = [me EXCEPT ![d].pc = "reading", ![d].base = me[d].v0]
  /\ UNCHANGED <<slots, records, files, kept, wire>>

\* A lease may expire while its reader sleeps.  The reader continues: it cannot know.
Expire(d) ==
  /\ me[d].pc \in {"pin", "reading"}
  /\ <<d, me[d].v0>> \in leases
  /\ leases' = leases \ {<<d, me[d].v0>>}
  /\ UNCHANGED <<slots, records, files, kept, wire, me>>

Read(d) ==
  /\ me[d].pc = "reading"
  /\ LET there == Live(me[d].base) \cap files
         whole == there = Live(me[d].base)
     IN  me' = [me EXCEPT ![d].pc = "done", ![d].result = there,
                 ![d].told = IF whole \/ ~Rule("missing_is_error") THEN "rows" ELSE "error"]
  /\ leases' = leases \ {<<d, me[d].v0>>}
  /\ UNCHANGED <<slots, records, files, kept, wire>>

\* A change read up to a time.  The next one begins there, so its meaning must not change.
ReadUpTo(d) ==
  /\ me[d].pc = "idle"
  /\ Cardinality(Clocks) > 1
  /\ LET h == HeadFrom(1)
     IN  \E t \in 1..Max(Clocks) :
           /\ Rule("settled") => t <= log[h].done
           /\ me' = [me EXCEPT ![d].pc = "bound", ![d].upto = t, ![d].base = VersionAt(t, h)]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

-----------------------------------------------------------------------------
(* A keeper. Checkpoints save the replay of history. The archive takes old *)
(* decisions out of their slots. Losing one checkpoint costs time, nothing *)
(* else.                                                                   *)

\* A checkpoint may be damaged, at once or later; only one in all.
Checkpoint(k) ==
  /\ LET h == HeadFrom(Past)
     IN  /\ h \notin checkpoints
         /\ checkpoints' = checkpoints \cup {h}
         /\ damaged' \in {damaged, damaged \cup (IF damaged = {} THEN {h} ELSE {})}
  /\ UNCHANGED <<slots, records, files, leases, wire, me>>

Damage(k) ==
  /\ damaged = {}
  /\ \E v \in checkpoints : damaged' = {v}
  /\ UNCHANGED <<slots, records, files, leases, checkpoints, wire, me>>

\* Delete an old one if two newer ones were read back and are whole.
Collect(k) ==
  /\ \E v \in checkpoints :
       /\ IF Rule("previous_checkpoint") THEN Cardinality({n \in Whole : n > v}) >= 2
                                         ELSE \E n \in checkpoints : n > v
       /\ checkpoints' = checkpoints \ {v}
       /\ damaged' = damaged
  /\ UNCHANGED <<slots, records, files, leases, wire, me>>

\* Archiving the decisions up to a version is a decision.  They must be before both checkpoints
\* that are kept: if one checkpoint is lost, the other still leads to the head.
ArchivePlan(k) ==
  /\ me[k].pc = "idle"
  /\ LET h == HeadFrom(Past)
         behind(v) == Cardinality({n \in Whole : n >= v})
     IN  \E v \in 1..h :
           /\ v \notin emptied
           /\ behind(v) >= IF Rule("archive_behind_both") THEN 2 ELSE 1
           /\ me' = [me EXCEPT ![k].pc = "archive", ![k].seen = h, ![k].upto = v]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

ArchivePublish(k) ==
  /\ me[k].pc = "archive"
  /\ Put(me[k].seen + 1,
         [Nothing EXCEPT !.kind = "archive", !.by = k, !.time = NewestTime(me[k].seen) + 1,
            !.base = me[k].seen, !.upto = me[k].upto])
  /\ me' = [me EXCEPT ![k].pc = "empty"]
  /\ UNCHANGED <<records, files, leases, kept>>

ArchiveAgain(k) ==
  /\ me[k].pc = "archive"
  /\ HeadFrom(me[k].seen) > me[k].seen
  /\ me' = [me EXCEPT ![k] = Fresh("idle")]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* Empty slots, oldest first.  The name stays: a client that slept would take a missing slot for
\* the head, and would win a version that was won long ago.
Empty(k) ==
  /\ me[k].pc = "empty"
  /\ LET todo == (1..me[k].upto) \ emptied
     IN  IF todo = {} THEN me' = [me EXCEPT ![k] = Fresh("idle")] /\ UNCHANGED <<present, emptied>>
         ELSE /\ emptied' = emptied \cup {Min(todo)}
              /\ present' = IF Rule("names_stay") THEN present ELSE present \ {Min(todo)}
              /\ UNCHANGED me
  /\ UNCHANGED <<log, records, files, leases, kept, wire>>

-----------------------------------------------------------------------------
(* An operator. A savepoint keeps a version; a restore returns to one. An  *)
(* undo takes back the horizons of a clean and of all cleans after it.     *)

Undoable(h) == IF Rule("undo_before_final") THEN Raised(h) ELSE Cleans(h)
Acts == IF Grace THEN {"undo"} ELSE {"savepoint", "restore"}
OperatorPlan(o) ==
  /\ me[o].pc = "idle"
  /\ LET h == HeadFrom(1)
     IN  \E v \in 1..h : \E kind \in Acts :
           /\ IF kind = "undo" THEN v \in Undoable(h) ELSE v >= Horizon(h) \/ v \in Savepoints(h)
           /\ kind = "restore" => v < h
           /\ kind = "savepoint" => Cleaners # {} \* only a cleaner can delete its files
           /\ me' = [me EXCEPT ![o].pc = "decide", ![o].seen = h, ![o].upto = v, ![o].kind = kind]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

\* A restore is a normal decision: it adds and drops files.  No decision is withdrawn.
OperatorPublish(o) ==
  /\ me[o].pc = "decide"
  /\ LET s == Live(me[o].upto)
         now == Live(me[o].seen)
         restore == me[o].kind = "restore"
     IN  Put(me[o].seen + 1,
             [Nothing EXCEPT !.kind = me[o].kind, !.by = o, !.time = NewestTime(me[o].seen) + 1,
                !.base = me[o].seen, !.upto = me[o].upto,
                !.adds = IF restore THEN s \ now ELSE {},
                !.drops = IF restore THEN now \ s ELSE {}])
  /\ me' = [me EXCEPT ![o] = Fresh("idle")]
  /\ UNCHANGED <<records, files, leases, kept>>

OperatorAgain(o) ==
  /\ me[o].pc = "decide"
  /\ HeadFrom(me[o].seen) > me[o].seen
  /\ me' = [me EXCEPT ![o] = Fresh("idle")]
  /\ UNCHANGED <<slots, records, files, leases, kept, wire>>

-----------------------------------------------------------------------------

Init ==
  /\ log = SubSeq(History, 1, Past)
  /\ present = 1..Past
  /\ emptied = {}
  /\ records = {}
  /\ files = UNION {History[v].adds : v \in 1..Past}
  /\ leases = {}
  /\ checkpoints = {1, Past}
  /\ damaged = {}
  /\ wire = {}
  /\ me = [a \in Actors |-> Fresh("idle")]

WriterStep(w) ==
  \/ Begin(w) \/ Look(w) \/ LookTooEarly(w) \/ BeginTooLate(w) \/ Announce(w) \/ Stage(w)
  \/ Validate(w) \/ Publish(w) \/ PublishSlowly(w) \/ Arrive(w) \/ ReadBack(w) \/ LookThenPut(w)
  \/ Finish(w) \/ Leave(w) \/ Crash(w)
RollStep(a) ==
  RollLook(a) \/ RollPublish(a) \/ RollAgain(a) \/ Sweep(a) \/ Forget(a) \/ FinishCopy(a)
CleanerStep(c) ==
  \/ CleanPlan(c) \/ CleanPublish(c) \/ CleanAgain(c)
  \/ CleanListRecords(c) \/ CleanListLeases(c) \/ CleanDelete(c)
ReaderStep(d) ==
  Lease(d) \/ Pin(d) \/ PinTooEarly(d) \/ Expire(d) \/ Read(d) \/ ReadUpTo(d)
KeeperStep(k) ==
  \/ Checkpoint(k) \/ Damage(k) \/ Collect(k)
  \/ ArchivePlan(k) \/ ArchivePublish(k) \/ ArchiveAgain(k) \/ Empty(k)
OperatorStep(o) == OperatorPlan(o) \/ OperatorPublish(o) \/ OperatorAgain(o)

Next ==
  \/ \E w \in Writers : WriterStep(w)
  \/ \E r \in Recoverers : Suspect(r)
  \/ \E a \in Writers \cup Recoverers : RollStep(a)
  \/ \E c \in Cleaners : CleanerStep(c)
  \/ \E d \in Readers : ReaderStep(d)
  \/ \E k \in Keepers : KeeperStep(k)
  \/ \E o \in Operators : OperatorStep(o)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The invariants.                                                         *)

Versions == 1..Len(log)

\* INV-01 A published decision never changes; it is emptied only when the archive holds it.
INV_01 == [][/\ Len(log') >= Len(log)
             /\ \A v \in Versions : log'[v] = log[v]
             /\ \A v \in emptied' \ emptied :
                  \E u \in Versions : log[u].kind = "archive" /\ log[u].upto >= v]_slots

\* INV-02 Versions are dense, and a writer that was told that it won one has won it.
INV_02 == /\ \A v \in present : v > 1 => v - 1 \in present \cup emptied
          /\ \A w \in Writers : me[w].told = "committed" =>
               \E v \in present \cup emptied : IsWrite(log[v]) /\ log[v].by = w

\* INV-03 An instant is decided at most once ...
INV_03 == \A w \in Writers :
  Cardinality({v \in Versions : (IsWrite(log[v]) /\ log[v].by = w) \/ w \in log[v].ends})
    + Cardinality({x \in records : x = <<w, "rollback">>}) <= 1
\* ... and no two completed instants share a time.
TimesUnique == \A u, v \in Versions : log[u].time = log[v].time => u = v

\* INV-04 A reader at version v sees exactly the files that decisions up to v name.
INV_04 == \A d \in Readers : me[d].told = "rows" => me[d].result = Live(me[d].base)

\* A bound that a reader was given stays true: no commit comes between two reads that share it.
BoundsStay == \A d \in Readers : me[d].pc = "bound" => VersionAt(me[d].upto, Len(log)) = me[d].base

\* INV-05 No file that a retained version, a savepoint, a lease or a writer's base needs is ever
\* deleted.
Working(w) == /\ me[w].pc \in {"stage", "ready", "unsure", "looked"}
              /\ \A v \in Versions : w \notin log[v].ends /\ ~(IsWrite(log[v]) /\ log[v].by = w)
Needed == (Horizon(Len(log))..Len(log)) \cup Savepoints(Len(log))
          \cup {me[d].base : d \in {x \in Readers : me[x].pc = "reading"
                                                    /\ <<x, me[x].v0>> \in leases}}
          \cup {me[w].base : w \in {x \in Writers : Working(x)}}
INV_05 == \A v \in Needed : Live(v) \subseteq files

\* INV-06 Only files that a decision condemned, or whose instant it rolled back, are deleted.
INV_06 == [][\A f \in files \ files' :
               \E v \in Versions : f \in log[v].condemns \/ f.by \in log[v].ends]_files

\* INV-07 No conflicting decision lies between a commit's base and its version.
Conflict(d, e) == IsWrite(d) /\ (e.kind = "restore" \/ (IsWrite(e) /\ d.buckets \cap e.buckets # {}))
INV_07 == \A v \in Versions : \A u \in (log[v].base + 1)..(v - 1) : ~Conflict(log[v], log[u])

\* INV-08 A bucket has one live file, so a key has at most one live row.
INV_08 == \A b \in Buckets : Cardinality({f \in Live(Len(log)) : f.at = b}) <= 1

\* INV-09 A stream token is applied at most once, for ever.
INV_09 == \A u, v \in Versions :
  IsWrite(log[u]) /\ IsWrite(log[v]) /\ log[u].token = log[v].token => u = v

\* A writer that is told that its epoch was applied can drop its rows: they are in the table.
ReplaysAreTrue == \A w \in Writers : me[w].told = "applied before" =>
  \E v \in Versions : IsWrite(log[v]) /\ log[v].token = Token(w) /\ log[v].rows = Rows(w)

\* INV-10 A writer is never told "not committed" if its commit landed or may still land, nor
\* "committed" if it did not land.
INV_10 == \A w \in Writers :
  LET landed == \E v \in Versions : IsWrite(log[v]) /\ log[v].by = w
  IN  /\ me[w].told = "committed" => landed
      /\ me[w].told \in {"failed", "applied before", "nothing"} => ~landed

\* INV-11 Losing a checkpoint costs time, never the table: every emptied slot is before a whole
\* checkpoint.
INV_11 == emptied = {} \/ \E v \in Whole : v >= Max(emptied)

\* A writer never fails because of a service.
ServicesYield == \A w \in Writers \ Services : me[w].told = "failed" =>
  \E v \in Versions : \/ w \in log[v].ends /\ log[v].by # w
                      \/ /\ v > me[w].base
                         /\ \/ log[v].kind = "restore"
                            \/ log[v].kind = "commit" /\ log[v].buckets \cap me[w].wants # {}

\* Recovery can find every file of a dead writer: by a decision, a record, or a rollback.  This is
\* weaker than the others: a file that is never found costs space, never rows.
NoOrphans == \A f \in files :
  \/ \E v \in Versions : f \in log[v].adds \/ f \in log[v].drops
  \/ \E v \in Versions : f.by \in log[v].ends /\ f.at \in log[v].places
  \/ f.by \in Pending
=============================================================================
