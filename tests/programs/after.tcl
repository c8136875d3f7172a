# Timers, file events and threads of Tcl, for the end-to-end tests.
set n 0
proc tick {i} {
	global n done
	incr n $i
	if {$i < 20} { after 1 [list tick [expr {$i + 1}]] } else { set done 1 }
}
after 0 [list tick 1]
set cancelled [after 5000 {puts never}]
vwait done
after cancel $cancelled
puts "ticks $n"
set f [open "|seq 50 | tac" r]
fconfigure $f -blocking 0
fileevent $f readable {
	while {[gets $f line] >= 0} { lappend lines $line }
	if {[eof $f]} { close $f; set closed 1 }
}
vwait closed
puts "lines [llength $lines] first [lindex $lines 0]"
set server [socket -server {apply {{s addr port} { puts $s [string toupper [gets $s]]; close $s }}} -myaddr 127.0.0.1 0]
set c [socket 127.0.0.1 [lindex [fconfigure $server -sockname] 2]]
puts $c "hello over a socket"; flush $c
fileevent $c readable {set said [gets $c]}
vwait said
puts $said
after 3
exit 6
