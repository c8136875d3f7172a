# The gdb session of ./demo: from the crash back to the line that caused it.
set pagination off
set confirm off
set width 0
echo \n-- The recording is loaded. Forward, to where it ends:\n
echo (gdb) continue\n
continue
echo \n-- A crash in total(), which looks right. What does it work on?\n
echo (gdb) print *a\n
print *a
echo (gdb) print a->price\n
print a->price
echo \n-- That is no address: it is text. Who wrote it there? Watch the place, and run backwards:\n
echo (gdb) watch -location a->price\n
watch -location a->price
echo (gdb) reverse-continue\n
reverse-continue
echo \n-- There: the last of those characters is about to be written. Where are we?\n
echo (gdb) backtrace\n
backtrace
echo (gdb) list\n
list
echo (gdb) print i\n
print i
echo (gdb) ptype a->name\n
ptype a->name
