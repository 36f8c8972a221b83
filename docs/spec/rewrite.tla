------------------------------ MODULE rewrite ------------------------------
(* Compaction and clustering beside writers, row by row (RFC 0018).  A rewrite *)
(* copies the rows of some files into a new one, and says where each row went. *)
(* Rows that others hide meanwhile are hidden in the new file too: by the      *)
(* rewrite, if it is published later, otherwise by the writer itself.          *)
(*                                                                             *)
(* One bucket, or one partition of a table without keys.  How a slot is won is *)
(* the matter of commit.tla; here a publish is one step.  An actor that never  *)
(* moves again has crashed.                                                    *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Maskers,     \* writers that hide rows and add a file (merge-on-read)
  Copiers,     \* writers that replace every file (copy-on-write)
  Rewriters,   \* each rewrites some files, once
  Operators,   \* each restores an older version, once
  Expirers,    \* each takes some rows away whose time is over, once
  Keys,        \* numbers
  MaxVersion,  \* the last version of a run
  Without      \* names of rules that are left out, to show that each is needed

Rule(name) == name \notin Without

VARIABLES
  log,         \* the decisions
  me           \* what each actor knows

vars == <<log, me>>
Writers == Maskers \cup Copiers

Max(S) == CHOOSE x \in S : \A y \in S : y <= x

-----------------------------------------------------------------------------
(* Files, and what is visible.  A row is <<key, author>>: no two are alike.    *)
(* A place <<file, position>> is where a row stands.                           *)

File(a, n, rows) == [by |-> a, n |-> n, rows |-> rows]
RowAt(p) == p[1].rows[p[2]]
All(f) == 1..Len(f.rows)

RECURSIVE Sorted(_)
Sorted(S) == IF S = {} THEN <<>>
             ELSE LET least == CHOOSE x \in S : \A y \in S : x[1] <= y[1]
                  IN  <<least>> \o Sorted(S \ {least})

\* masks: each [of, rows] replaces the mask that its file had.  moved: <<file, position, new file,
\* position>> of each row that a rewrite copied.
Nothing == [kind |-> "none", by |-> "none", keys |-> {}, put |-> FALSE, adds |-> {}, drops |-> {},
            masks |-> {}, moved |-> {}, to |-> 0, expired |-> {}]

\* A file may be dropped and, by a restore, added again: the later of the two counts.
Live(v) == {f \in UNION {log[u].adds : u \in 1..v} :
              Max({u \in 1..v : f \in log[u].adds})
                > Max({0} \cup {u \in 1..v : f \in log[u].drops})}
MaskedAt(f, v) == {u \in 1..v : \E m \in log[u].masks : m.of = f}
Mask(f, v) == IF MaskedAt(f, v) = {} THEN {}
              ELSE (CHOOSE m \in log[Max(MaskedAt(f, v))].masks : m.of = f).rows
Places(v) == UNION {{<<f, i>> : i \in All(f) \ Mask(f, v)} : f \in Live(v)}
Visible(v) == {RowAt(p) : p \in Places(v)}

\* The table's past: two rows, of which a second file replaced one.
Base == File("past", 1, <<<<1, "past">>, <<2, "past">>>>)
Log == File("past", 2, <<<<2, "newer">>>>)
Past == [Nothing EXCEPT !.kind = "create", !.adds = {Base, Log}, !.masks = {[of |-> Base, rows |-> {2}]}]

Newest == Len(log)
Free == Newest < MaxVersion

Fresh == [pc |-> "idle", keys |-> {}, put |-> FALSE, base |-> 0, staged |-> 0, round |-> 0, hides |-> {},
          adds |-> {}, moved |-> {}, gone |-> {}]

-----------------------------------------------------------------------------
(* A writer.  idle -> ready -> won or failed.  What it hides is a set of       *)
(* places, beyond those that are hidden at its base.                           *)

Staged(w, keys, put, round) ==
  LET new == IF put THEN {<<k, w>> : k \in keys} ELSE {}
      kept == IF w \in Copiers THEN {r \in Visible(Newest) : r[1] \notin keys} ELSE {}
      rows == Sorted(kept \cup new)
      hides == IF w \in Copiers THEN Places(Newest) ELSE {p \in Places(Newest) : RowAt(p)[1] \in keys}
  IN  [Fresh EXCEPT !.pc = "ready", !.keys = keys, !.put = put, !.base = Newest, !.staged = Newest,
         !.round = round, !.hides = hides,
         !.adds = IF rows = <<>> THEN {} ELSE {File(w, round, rows)}]

Stage(w) ==
  /\ me[w].pc = "idle"
  /\ \E keys \in (SUBSET Keys) \ {{}} : \E put \in BOOLEAN :
       me' = [me EXCEPT ![w] = Staged(w, keys, put, 0)]
  /\ UNCHANGED log

\* Follow what one rewrite moved.  A file that the writer removes is one of which it hides all rows.
Whole(hides, f, v) == All(f) \ Mask(f, v) = {p[2] : p \in {x \in hides : x[1] = f}}
Followed(hides, u) ==
  LET asked(f) == Rule("removals_followed") \/ ~Whole(hides, f, u - 1)
      moves == {m \in log[u].moved : <<m[1], m[2]>> \in hides /\ asked(m[1])}
  IN  {p \in hides : p[1] \notin log[u].drops} \cup {<<m[3], m[4]>> : m \in moves}

RECURSIVE FollowAll(_, _, _)
FollowAll(hides, u, last) ==
  IF u > last THEN hides
  ELSE LET now == IF log[u].kind = "rewrite" THEN Followed(hides, u)
                  ELSE IF log[u].kind = "expire" THEN {p \in hides : p[1] \notin log[u].drops}
                  ELSE hides
       IN  IF Rule("each_rewrite") \/ log[u].kind # "rewrite" THEN FollowAll(now, u + 1, last) ELSE now

\* Judge the window.  Other writers of the same key were first: fail.  Of other keys in the same
\* files: do it again.  Rewrites: follow them, and do nothing again.  An expiry moves nothing, so who
\* only hides rows goes on; but who copied rows may have copied some that are gone.
Validate(w) ==
  /\ me[w].pc = "ready" /\ me[w].base < Newest
  /\ LET window == (me[w].base + 1)..Newest
         commits == {u \in window : log[u].kind = "commit"}
         restored == \E u \in window : log[u].kind = "restore"
         same == \E u \in commits : log[u].keys \cap me[w].keys # {}
         expired == \E u \in window : log[u].kind = "expire"
         again == \/ commits # {} \/ ~Rule("writers_go_on")
                  \/ w \in Copiers /\ expired /\ Rule("expiry_redone_by_copiers")
     IN  me' = IF restored \/ same THEN [me EXCEPT ![w].pc = "failed"]
               ELSE IF again
               THEN [me EXCEPT ![w] = Staged(w, me[w].keys, me[w].put, me[w].round + 1)]
               ELSE [me EXCEPT ![w].base = Newest,
                       ![w].hides = IF Rule("masks_followed") THEN FollowAll(@, me[w].base + 1, Newest)
                                    ELSE @]
  /\ UNCHANGED log

\* A deletion vector replaces the one before.  So it begins with what the head hides, also in a file
\* that the writer has never seen: a rewrite made it, with rows that were hidden meanwhile.
MaskOf(w, f) ==
  (IF Rule("head_masks") \/ f \in Live(me[w].staged) THEN Mask(f, Newest) ELSE {})
    \cup {p[2] : p \in {x \in me[w].hides : x[1] = f}}

Commit(w) ==
  /\ me[w].pc = "ready" /\ me[w].base = Newest /\ Free
  /\ LET hit == {p[1] : p \in me[w].hides}
         drops == {f \in hit : MaskOf(w, f) = All(f)}
     IN  log' = Append(log, [Nothing EXCEPT
           !.kind = "commit", !.by = w, !.keys = me[w].keys, !.put = me[w].put, !.adds = me[w].adds,
           !.drops = drops, !.masks = {[of |-> f, rows |-> MaskOf(w, f)] : f \in hit \ drops}])
  /\ me' = [me EXCEPT ![w].pc = "won"]

-----------------------------------------------------------------------------
(* A rewriter.  idle -> ready -> won, or over where nothing is left to do.     *)

Plan(r) ==
  /\ me[r].pc = "idle"
  /\ \E sources \in SUBSET Live(Newest) :
       LET places == {p \in Places(Newest) : p[1] \in sources}
           rows == Sorted({RowAt(p) : p \in places})
           new == File(r, 0, rows)
           at(p) == CHOOSE j \in All(new) : rows[j] = RowAt(p)
       IN  /\ places # {}
           /\ me' = [me EXCEPT ![r] = [Fresh EXCEPT !.pc = "ready", !.base = Newest, !.staged = Newest,
                !.adds = {new}, !.moved = {<<p[1], p[2], new, at(p)>> : p \in places}]]
  /\ UNCHANGED log

Sources(r) == {m[1] : m \in me[r].moved}

\* Which of the copied rows are not visible any more: somebody hid them, or took their file away,
\* whoever it was.
Gone(r) ==
  {m[4] : m \in {x \in me[r].moved : x[1] \notin Live(Newest) \/ x[2] \in Mask(x[1], Newest)}}

\* A restore may have brought rows back that were hidden when the copy was made.
CameBack(r) == \E f \in Sources(r) \cap Live(Newest) : ~(Mask(f, me[r].staged) \subseteq Mask(f, Newest))

\* Carry over, on each new head, what others hid.
Carry(r) ==
  /\ me[r].pc = "ready" /\ me[r].base < Newest
  /\ me' = IF CameBack(r) /\ Rule("nothing_came_back") THEN [me EXCEPT ![r].pc = "over"]
           ELSE [me EXCEPT ![r].base = Newest,
                   ![r].gone = IF Rule("masks_carried")
                                  /\ (Rule("carried_again") \/ me[r].base = me[r].staged)
                               THEN Gone(r) ELSE @]
  /\ UNCHANGED log

Rewrite(r) ==
  /\ me[r].pc = "ready" /\ me[r].base = Newest /\ Free
  /\ LET new == CHOOSE f \in me[r].adds : TRUE
     IN  IF me[r].gone = All(new)
         THEN me' = [me EXCEPT ![r].pc = "over"] /\ UNCHANGED log
         ELSE /\ log' = Append(log, [Nothing EXCEPT
                   !.kind = "rewrite", !.by = r, !.adds = {new}, !.drops = Sources(r) \cap Live(Newest),
                   !.masks = IF me[r].gone = {} THEN {} ELSE {[of |-> new, rows |-> me[r].gone]},
                   !.moved = me[r].moved])
              /\ me' = [me EXCEPT ![r].pc = "won"]

-----------------------------------------------------------------------------
(* An operator.  A restore adds files again, and puts their masks back.        *)

Restore(o) ==
  /\ me[o].pc = "idle" /\ Free
  /\ \E v \in 1..(Newest - 1) :
       log' = Append(log, [Nothing EXCEPT
         !.kind = "restore", !.by = o, !.to = v, !.adds = Live(v) \ Live(Newest),
         !.drops = Live(Newest) \ Live(v),
         !.masks = {[of |-> f, rows |-> Mask(f, v)] : f \in Live(v)}])
  /\ me' = [me EXCEPT ![o].pc = "won"]

-----------------------------------------------------------------------------
(* An expirer.  What has expired are rows, so their places in the files of its *)
(* base are found once.  The decision is drafted anew on each head.            *)

Find(e) ==
  /\ me[e].pc = "idle"
  /\ \E gone \in (SUBSET Places(Newest)) \ {{}} :
       me' = [me EXCEPT ![e] = [Fresh EXCEPT !.pc = "ready", !.base = Newest, !.hides = gone]]
  /\ UNCHANGED log

Expire(e) ==
  /\ me[e].pc = "ready" /\ Free
  /\ LET seen == IF Rule("expiry_drafted_anew") THEN Newest ELSE me[e].base
         gone == me[e].hides \cap Places(seen)
         hit == {p[1] : p \in gone}
         mask(f) == Mask(f, seen) \cup {p[2] : p \in {x \in gone : x[1] = f}}
         drops == {f \in hit : mask(f) = All(f)}
     IN  IF gone = {}
         THEN me' = [me EXCEPT ![e].pc = "over"] /\ UNCHANGED log
         ELSE /\ log' = Append(log, [Nothing EXCEPT
                   !.kind = "expire", !.by = e, !.drops = drops, !.expired = {RowAt(p) : p \in gone},
                   !.masks = {[of |-> f, rows |-> mask(f)] : f \in hit \ drops}])
              /\ me' = [me EXCEPT ![e].pc = "won"]

-----------------------------------------------------------------------------

Init ==
  /\ log = <<Past>>
  /\ me = [a \in Writers \cup Rewriters \cup Operators \cup Expirers |-> Fresh]

Next ==
  \/ \E w \in Writers : Stage(w) \/ Validate(w) \/ Commit(w)
  \/ \E r \in Rewriters : Plan(r) \/ Carry(r) \/ Rewrite(r)
  \/ \E o \in Operators : Restore(o)
  \/ \E e \in Expirers : Find(e) \/ Expire(e)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold.                                                             *)
(* Decisions never change, so it is enough to look at the newest version in    *)
(* each state: the others were the newest before.                              *)

\* What the table holds if each commit does to keys what it says, and a rewrite does nothing.
RECURSIVE Expected(_)
Expected(v) ==
  IF v = 1 THEN {<<1, "past">>, <<2, "newer">>}
  ELSE LET d == log[v]
       IN  IF d.kind = "restore" THEN Expected(d.to)
           ELSE {r \in Expected(v - 1) \ d.expired : r[1] \notin d.keys}
                  \cup (IF d.put THEN {<<k, d.by>> : k \in d.keys} ELSE {})
RowsAreRight == Visible(Newest) = Expected(Newest)

\* A rewrite changes no row.
RewritesChangeNoRow == log[Newest].kind = "rewrite" => Visible(Newest) = Visible(Newest - 1)

\* A row that a commit or an expiry hid stays hidden, whatever raced with it; only a restore brings it
\* back.
MaskedStays == \A v \in 2..Newest :
  log[v].kind \in {"commit", "expire"} /\ (\A u \in v..Newest : log[u].kind # "restore") =>
    (Visible(v - 1) \ Visible(v)) \cap Visible(Newest) = {}

\* INV-08 A key has at most one visible row.
OneRowAKey == \A p, q \in Places(Newest) : RowAt(p)[1] = RowAt(q)[1] => p = q

\* A writer neither fails nor does its work again because of a rewrite.  None fails because of an
\* expiry, and only who copied rows does its work again.
WritersGoOn == \A w \in Writers :
  LET others == {v \in 1..Newest : log[v].kind = "commit" /\ log[v].by # w}
      expiries == {v \in 1..Newest : log[v].kind = "expire" /\ w \in Copiers}
  IN  /\ me[w].round <= Cardinality(others \cup expiries)
      /\ me[w].pc = "failed" =>
           \/ \E v \in others : v > me[w].base /\ log[v].keys \cap me[w].keys # {}
           \/ \E v \in (me[w].base + 1)..Newest : log[v].kind = "restore"
=============================================================================
