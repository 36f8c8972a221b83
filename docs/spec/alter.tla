-------------------------------- MODULE alter --------------------------------
(* Changes of columns beside writers (RFC 0027). Each writer has one row. It    *)
(* puts the whole row, may bring a column along, or sets one column by name. A  *)
(* decision is one step, and rests on any version since which its author may    *)
(* have been at work, or paused. commit.tla describes publishing itself, and    *)
(* scripts/column_matrix.py says what becomes of each kind of work.             *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Names,       \* of columns, numbers; the table begins with the column 1
  Values,      \* that writers give: 1, and 2, which breaks every check
  Writers,     \* numbers
  MaxVersion,  \* the last version of a run
  Without      \* names of rules that are left out, to show that each is needed

Rule(name) == name \notin Without

VARIABLE log  \* the decisions, each with what the table is after it

Newest == Len(log)
Last == log[Newest]
Null == 0
Bad == 2
Empty == [number \in 1..(MaxVersion + 1) |-> Null]

\* A column: its name, its id, the version that added it, and whether a check looks at it. Files have
\* values by id. What a row was meant to have goes by the version that added the column, which nobody
\* can take for another. `due` says which columns there must be, one change after the other.
First == [name |-> 1, id |-> 1, born |-> 1, checked |-> FALSE]
Create == [kind |-> "create", by |-> 0, cols |-> {First}, due |-> {First},
           stored |-> [w \in Writers |-> Empty], meant |-> [w \in Writers |-> Empty]]

Has(cols, name) == \E c \in cols : c.name = name
Of(cols, name) == CHOOSE c \in cols : c.name = name
IdsOf(v) == {c.id : c \in log[v].cols}
Greatest(numbers) == CHOOSE i \in numbers : \A j \in numbers : j <= i

\* Ids follow all that the table ever had, which its definition tells; without the rule, those of now.
NextId(v) ==
  1 + Greatest({0} \cup IF Rule("ids_stay_taken") THEN UNION {IdsOf(u) : u \in 1..v} ELSE IdsOf(v))

Holds(cols, row) == \A c \in cols : c.checked => row[c.id] # Bad

-----------------------------------------------------------------------------
(* Writers.                                                                    *)

Brings(s) == s.kind = "put" /\ s.name # 0 /\ ~Has(log[s.base].cols, s.name)

\* The row as it was staged: a brought column has an id that nobody else knows.
Staged(w, s) ==
  LET cols == log[s.base].cols
  IN  IF s.kind = "put"
      THEN [i \in DOMAIN Empty |->
             IF \E c \in cols : c.id = i THEN s.value
             ELSE IF Brings(s) /\ i = NextId(s.base) THEN s.value ELSE Null]
      ELSE [log[s.base].stored[w] EXCEPT ![Of(cols, s.name).id] = s.value]

\* Work of a writer that has committed nothing since its base, and that was sound there.
Work(w) ==
  {s \in [base : 1..Newest, kind : {"put", "set"}, name : Names \cup {0}, value : Values] :
     /\ \A u \in (s.base + 1)..Newest : log[u].by # w
     /\ s.kind = "set" <=> Has(log[s.base].cols, s.name)
     /\ Holds(log[s.base].cols, Staged(w, s))}

\* The columns are compared with those of the base, whoever changed them.
Changed(u) == \/ log[u].kind = "alter" /\ Rule("alter_seen")
              \/ log[u].kind = "write" /\ log[u].cols # log[u - 1].cols /\ Rule("brought_seen")
Restages(s) == \E u \in (s.base + 1)..Newest : Changed(u)

\* The columns after a commit: a column that the rows bring is that of its name, if there is one.
Evolved(s) ==
  IF ~Brings(s) \/ Has(Last.cols, s.name) THEN Last.cols
  ELSE Last.cols \cup
       {[name |-> s.name, id |-> NextId(Newest), born |-> Newest + 1, checked |-> FALSE]}

\* The row as one of the columns that there are now.
Same(c, d) == IF Rule("by_ids") THEN c.id = d.id ELSE c.name = d.name
Again(w, s) ==
  LET then == log[s.base].cols
      now == Evolved(s)
  IN  IF s.kind = "put"
      THEN [i \in DOMAIN Empty |->
             IF \E d \in now : d.id = i /\ (\/ \E c \in then : Same(c, d)
                                            \/ Brings(s) /\ d.name = s.name)
             THEN s.value ELSE Null]
      ELSE [Last.stored[w] EXCEPT ![Of(Last.cols, s.name).id] = s.value]

\* What is refused: an expression whose name is no more, or another column's; and rows whose brought
\* column has the name of a column that they have under another one.
Fits(s) ==
  LET then == log[s.base].cols
  IN  IF s.kind = "set"
      THEN /\ Has(Last.cols, s.name)
           /\ Rule("names_meant") => Of(Last.cols, s.name).id = Of(then, s.name).id
      ELSE (Brings(s) /\ Has(Last.cols, s.name)) => Of(Last.cols, s.name).id \notin {c.id : c \in then}

Meant(w, s) ==
  LET then == log[s.base].cols
  IN  IF s.kind = "put"
      THEN [b \in DOMAIN Empty |->
             IF \/ \E c \in then : c.born = b
                \/ Brings(s) /\ b = Of(Evolved(s), s.name).born
             THEN s.value ELSE Null]
      ELSE [Last.meant[w] EXCEPT ![Of(then, s.name).born] = s.value]

Commit(w) ==
  \E s \in Work(w) :
    LET row == IF Restages(s) THEN Again(w, s) ELSE Staged(w, s)
    IN  /\ Restages(s) => Fits(s) /\ Holds(Last.cols, row)
        /\ log' = Append(log, [kind |-> "write", by |-> w, cols |-> Evolved(s),
                               due |-> Last.due \cup (Evolved(s) \ Last.cols),
                               stored |-> [Last.stored EXCEPT ![w] = row],
                               meant |-> [Last.meant EXCEPT ![w] = Meant(w, s)]])

-----------------------------------------------------------------------------
(* Alterations.                                                                *)

Steps == [kind : {"add", "drop", "check"}, name : Names, to : {0}]
         \cup [kind : {"rename"}, name : Names, to : Names]

Possible(cols, step) ==
  CASE step.kind = "add" -> ~Has(cols, step.name)
    [] step.kind = "drop" -> Has(cols, step.name) /\ ~Of(cols, step.name).checked
    [] step.kind = "check" -> Has(cols, step.name) /\ ~Of(cols, step.name).checked
    [] step.kind = "rename" -> Has(cols, step.name) /\ ~Has(cols, step.to)

After(cols, step, id) ==
  LET rest == {c \in cols : c.name # step.name}
      c == Of(cols, step.name)
  IN  CASE step.kind = "add" ->
             cols \cup {[name |-> step.name, id |-> id, born |-> Newest + 1, checked |-> FALSE]}
        [] step.kind = "drop" -> rest
        [] step.kind = "check" -> rest \cup {[c EXCEPT !.checked = TRUE]}
        [] step.kind = "rename" -> rest \cup {[c EXCEPT !.name = step.to]}

\* Who adds a check reads the rows of a version first.
Read(v, step) ==
  step.kind = "check" =>
    \A w \in Writers : log[v].stored[w][Of(log[v].cols, step.name).id] # Bad

\* The steps are taken from the columns that the decision replaces, and what came since the rows were
\* read is read too.
Alter ==
  \E step \in Steps, base \in 1..Newest :
    LET from == IF Rule("from_head") THEN Newest ELSE base
        seen == IF Rule("read_again") THEN Newest ELSE base
        after == After(log[from].cols, step, NextId(from))
        due == After(Last.due, step, NextId(from))
    IN  /\ Possible(log[from].cols, step)
        /\ Possible(log[seen].cols, step) /\ Read(seen, step)
        /\ log' = Append(log, [Last EXCEPT !.kind = "alter", !.by = 0, !.cols = after,
                               !.due = IF Possible(Last.due, step) THEN due ELSE Last.due])

-----------------------------------------------------------------------------

Init == log = <<Create>>
Next == Newest < MaxVersion /\ (Alter \/ \E w \in Writers : Commit(w))
Spec == Init /\ [][Next]_log

-----------------------------------------------------------------------------
(* What must hold.                                                             *)

\* No two columns that the table ever had share an id, and none gets another one.
OneColumnAnId ==
  \A u, v \in 1..Newest : \A c \in log[u].cols, d \in log[v].cols : c.id = d.id <=> c.born = d.born

\* Every change counts, also of two at once.
EveryChangeCounts == Last.cols = Last.due

\* No row breaks a check of its version.
ChecksHold == \A w \in Writers : Holds(Last.cols, Last.stored[w])

\* Each column of a row has the value that its writer gave it, whatever the column is called now.
RowsAreRight ==
  \A w \in Writers : \A c \in Last.cols : Last.stored[w][c.id] = Last.meant[w][c.born]
=============================================================================
