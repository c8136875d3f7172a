# Threads of Ruby, for the end-to-end tests. Prints the same every time.
require 'digest/md5' # which 'digest' would load when threads first ask for it, not safely
require 'open3'
q, lock, sum = Queue.new, Mutex.new, 0
threads = 4.times.map { Thread.new { while (n = q.pop) != :end do r = Digest::MD5.hexdigest(n.to_s).to_i(16) % 1000; lock.synchronize { sum += r } end } }
300.times { |i| q << i }
4.times { q << :end }
threads.each(&:join)
puts sum
r, w = IO.pipe
reader = Thread.new { r.read.size }
Thread.new { 50.times { |i| w.write("line #{i}\n"); Thread.pass }; w.close }
puts reader.value
puts 5.times.map { |i| Thread.new { sleep 0.001; system("exit #{i}"); $?.exitstatus } }.map(&:value).inspect
puts Open3.capture2('tr a-z A-Z', stdin_data: 'ruby')[0]
t = Thread.new { begin; sleep; ensure; puts 'killed'; end }
Thread.pass until t.stop?
t.kill.join
begin; Thread.new { Thread.current.report_on_exception = false; raise 'oops' }.join; rescue => e; puts e.message; end
GC.start
pid = fork { exit Thread.new { 9 }.value }
Process.wait pid
puts $?.exitstatus
