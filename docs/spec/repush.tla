------------------------------- MODULE repush -------------------------------
(* A repush beside writers and a cleaner (RFC 0021). Each commit of a writer    *)
(* adds one to a key, computed from the version that it read. A repush builds a *)
(* shadow in a directory of its own, follows the table, and is swapped in by    *)
(* one decision. Each publish is one step, and so is a commit of the shadow.    *)
(* Anybody may pause for ever. commit.tla describes publishing itself.          *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Keys,        \* numbers
  Writers,     \* numbers
  Repushers,   \* processes that repush, numbers
  MaxVersion,  \* the last version of a run
  Without      \* names of rules that are left out, to show that each is needed

Rule(name) == name \notin Without

VARIABLES
  log,       \* the decisions, each with what the table is after it
  horizon,   \* the oldest version that can be read
  writer,    \* what each writer has staged
  mine,      \* the directory that each repusher works for; 0 for none
  shadow,    \* by directory: the rows there, and the version that they are of
  deleted    \* the directories that somebody has emptied

vars == <<log, horizon, writer, mine, shadow, deleted>>

Newest == Len(log)
Free == Newest < MaxVersion
Dirs == 1..MaxVersion
Idle == [base |-> 0, key |-> 0, layout |-> 0]
NoShadow == [rows |-> [k \in Keys |-> 0], version |-> 0]

\* A decision: its kind, the key of a write, the rows, the layout, the layout of each row's file, the
\* directory of the files that a swap brought (0: the table's own), and the open repush.
First == [kind |-> "create", key |-> 0, rows |-> [k \in Keys |-> 0], layout |-> 1,
          place |-> [k \in Keys |-> 1], dir |-> 0, open |-> 0]
Last == log[Newest]
Decide(d) == Free /\ log' = Append(log, d)

-----------------------------------------------------------------------------
(* Writers.                                                                    *)

Stage(w) ==
  /\ writer[w] = Idle
  /\ \E k \in Keys : writer' = [writer EXCEPT ![w] = [base |-> Newest, key |-> k, layout |-> Last.layout]]
  /\ UNCHANGED <<log, horizon, mine, shadow, deleted>>

\* The decisions that a commit judges: all since its base; without the rule, those since the last swap.
SwapsSince(v) == {u \in (v + 1)..Newest : log[u].kind = "swap"}
JudgedFrom(v) ==
  IF Rule("earlier_judged") \/ SwapsSince(v) = {} THEN v
  ELSE CHOOSE u \in SwapsSince(v) : \A x \in SwapsSince(v) : x <= u
Conflicts(s) == \E u \in (JudgedFrom(s.base) + 1)..Newest : log[u].kind = "write" /\ log[u].key = s.key

Commit(w) ==
  LET s == writer[w]
      layout == IF Rule("restaged") THEN Last.layout ELSE s.layout
  IN  /\ s # Idle /\ ~Conflicts(s)
      /\ Decide([Last EXCEPT !.kind = "write", !.key = s.key,
                             !.rows[s.key] = log[s.base].rows[s.key] + 1,
                             !.place[s.key] = layout])
      /\ writer' = [writer EXCEPT ![w] = Idle]
      /\ UNCHANGED <<horizon, mine, shadow, deleted>>

\* Somebody was first: the rows are computed again from the head.
Redo(w) ==
  /\ writer[w] # Idle /\ Conflicts(writer[w])
  /\ writer' = [writer EXCEPT ![w].base = Newest, ![w].layout = Last.layout]
  /\ UNCHANGED <<log, horizon, mine, shadow, deleted>>

-----------------------------------------------------------------------------
(* Repushers. The directory has the number of the version that begins it.      *)

Begin(p) ==
  /\ Last.open = 0 /\ mine[p] = 0
  /\ Decide([Last EXCEPT !.kind = "begin", !.open = Newest + 1])
  /\ mine' = [mine EXCEPT ![p] = Newest + 1]
  /\ UNCHANGED <<horizon, writer, shadow, deleted>>

\* Another process goes on with the open repush.
Join(p) ==
  /\ Last.open # 0 /\ mine[p] # Last.open
  /\ mine' = [mine EXCEPT ![p] = Last.open]
  /\ UNCHANGED <<log, horizon, writer, shadow, deleted>>

Base(d) == d - 1
Covered(d) == shadow[d].version

\* The load reads the base; a round reads what changed since the version that the shadow is of.
Needed(d) == IF Covered(d) = 0 THEN Base(d) ELSE Covered(d)
Load(p) ==
  LET d == mine[p]
  IN  /\ d # 0 /\ d \notin deleted /\ Covered(d) = 0 /\ horizon <= Base(d)
      /\ shadow' = [shadow EXCEPT ![d] = [rows |-> log[Base(d)].rows, version |-> Base(d)]]
      /\ UNCHANGED <<log, horizon, writer, mine, deleted>>
Follow(p) ==
  LET d == mine[p]
  IN  /\ d # 0 /\ d \notin deleted /\ Covered(d) # 0 /\ horizon <= Covered(d)
      /\ \E v \in (Covered(d) + 1)..Newest :
           shadow' = [shadow EXCEPT ![d] = [rows |-> log[v].rows, version |-> v]]
      /\ UNCHANGED <<log, horizon, writer, mine, deleted>>

Covers(d) == \A u \in (Covered(d) + 1)..Newest : log[u].kind # "write"
Swap(p) ==
  LET d == mine[p]
      layout == Last.layout + 1
  IN  /\ d # 0 /\ Covered(d) # 0
      /\ Last.open = d \/ ~Rule("open_only")
      /\ Covers(d) \/ ~Rule("covers_head")
      /\ Decide([kind |-> "swap", key |-> 0, rows |-> shadow[d].rows, layout |-> layout,
                 place |-> [k \in Keys |-> layout], dir |-> d, open |-> 0])
      /\ UNCHANGED <<horizon, writer, mine, shadow, deleted>>

Cancel ==
  /\ Last.open # 0
  /\ Decide([Last EXCEPT !.kind = "cancel", !.open = 0])
  /\ UNCHANGED <<horizon, writer, mine, shadow, deleted>>

\* What a directory has beside files of the table goes once a decision said that the repush is over.
Over(d) == \E u \in (d + 1)..Newest : log[u].open # d
Empty(d) ==
  /\ d <= Newest /\ log[d].kind = "begin" /\ d \notin deleted
  /\ Over(d) \/ ~Rule("over_first")
  /\ \A v \in horizon..Newest : log[v].dir # d
  /\ deleted' = deleted \cup {d}
  /\ UNCHANGED <<log, horizon, writer, mine, shadow>>

Clean ==
  /\ \E h \in (horizon + 1)..Newest :
       /\ Last.open = 0 \/ h <= Base(Last.open) \/ ~Rule("base_kept")
       /\ horizon' = h
  /\ UNCHANGED <<log, writer, mine, shadow, deleted>>

-----------------------------------------------------------------------------

Init ==
  /\ log = <<First>> /\ horizon = 1 /\ deleted = {}
  /\ writer = [w \in Writers |-> Idle]
  /\ mine = [p \in Repushers |-> 0]
  /\ shadow = [d \in Dirs |-> NoShadow]

Next ==
  \/ \E w \in Writers : Stage(w) \/ Commit(w) \/ Redo(w)
  \/ \E p \in Repushers : Begin(p) \/ Join(p) \/ Load(p) \/ Follow(p) \/ Swap(p)
  \/ \E d \in Dirs : Empty(d)
  \/ Cancel \/ Clean
Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                             *)

Writes(k) == {u \in 1..Newest : log[u].kind = "write" /\ log[u].key = k}

\* No commit is lost: neither by a swap nor by another commit (INV-07).
RowsAreRight == \A k \in Keys : Last.rows[k] = Cardinality(Writes(k))

\* Each row lies where readers of the newest version look for it (INV-08).
RowsAreFound == \A k \in Keys : Last.place[k] = Last.layout

\* The files of every version that can be read are there (INV-05).
FilesAreThere == \A v \in horizon..Newest : log[v].dir \notin deleted

\* While a repush is open, what it still has to read can be read, and what it built is there.
CanGoOn == Last.open # 0 => horizon <= Needed(Last.open) /\ Last.open \notin deleted
=============================================================================
