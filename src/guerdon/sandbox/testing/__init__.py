"""Testing an untrusted program: the tests run in one process of a sandbox, the program in another.

Three rules say how an object of one process appears in the other:

1. A plain value travels as a copy (`codec`, `plain`).
2. A container travels once: both processes have one of their own with the same number, and each
   message has the contents of those that have changed (`containers`). So are objects of the
   classes that the task's starter defines (`shared`).
3. Everything else stays where it is, and the other process has a handle of it (`remote`). What the
   tests ask of the program's objects is asked there, unless a program could win by its answer
   (`checker`, `keeping`). What the program may ask of the tests' objects is a list (`reach`).

`link` is the transport: one stream of JSON messages, each a question or an answer, with what has
changed beside it: containers, and the surroundings of a process such as its folder, seeds and
streams (`surroundings`). Exceptions travel with their class and cause (`raised`).

`checking` is outside of the sandbox: it starts both processes and reads the verdict. `units` finds
the tests of a text, `candidate` runs the program, and `running` the tests.

Inside a sandbox, this is the package ``guerdon_testing``, whose modules `inside` lists.
"""
