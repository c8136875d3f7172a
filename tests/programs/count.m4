dnl Recursive macros: sums, Fibonacci numbers and a table, of the size that -DN gives.
define(`forloop', `pushdef(`$1', `$2')_forloop($@)popdef(`$1')')dnl
define(`_forloop', `$4`'ifelse($1, `$3', `', `define(`$1', incr($1))$0($@)')')dnl
define(`fib', `ifelse(eval($1 < 2), 1, $1, `eval(fib(decr($1)) + fib(decr(decr($1))))')')dnl
forloop(`i', 1, N, `format(`%4d %6d %s', i, eval(i * i), translit(i, `0123456789', `abcdefghij'))
')dnl
fib(12) len(forloop(`i', 1, N, `i')) patsubst(`time travel', `t', `T')
