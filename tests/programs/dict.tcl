# Dictionaries, lists, regular expressions and wide integers.
set d [dict create]
for {set i 0} {$i < 3000} {incr i} {
	dict incr d [expr {$i * 31 % 97}] $i
}
puts [lrange [lsort -integer [dict values $d]] 0 8]
puts [regsub -all {(t)(\w)} "time travel to the start" {\2\1}]
puts [expr {2 ** 200 + 7}]
proc fib n { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
puts [fib 14]
puts [catch {error deep} message]:$message
