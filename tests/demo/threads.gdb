# The gdb session of ./demo's second act: which two threads lost a deposit between them.
set pagination off
set confirm off
set width 0
echo \n-- Forward, to where it gives up:\n
echo (gdb) continue\n
continue
echo \n-- The balance is wrong. Who set it last? Watch it, in all threads, and run backwards:\n
echo (gdb) frame function main\n
frame function main
echo (gdb) watch -location balance\n
watch -location balance
echo (gdb) reverse-continue\n
reverse-continue
echo (gdb) print was\n
print was
echo (gdb) thread\n
thread
echo \n-- And before that?\n
echo (gdb) reverse-continue\n
reverse-continue
echo (gdb) print was\n
print was
echo (gdb) thread\n
thread
echo (gdb) info threads\n
info threads
