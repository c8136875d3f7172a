# Helpers for the setup column of tests/programs/programs.tsv; sourced before it by tests/programs/run-programs.
# Everything made here is the same every time and on every host.

# text LINES: prose of a sort
text() {
	awk -v n="$1" 'BEGIN {
		split("time travel the of a recorded program memory and register walks back to see what " \
		      "happened before crash while every load is compared with its shadow", w, " ")
		for (k in w) words++
		x = 42
		for (i = 0; i < n; i++) {
			line = ""
			for (j = 0; j < 9; j++) {
				x = (x * 16807) % 2147483647
				line = line w[x % words + 1] (j == 8 ? "." : " ")
			}
			print line, x % 1000
		}
	}'
}

# numbers COUNT: one a line, in no order
numbers() {
	awk -v n="$1" 'BEGIN { x = 7; for (i = 0; i < n; i++) { x = (x * 16807) % 2147483647; print x } }'
}

# tree: the directory t with 10 directories of 12 files each
tree() {
	mkdir t
	for d in 0 1 2 3 4 5 6 7 8 9; do
		mkdir "t/d$d"
		for f in a b c d e f g h i j k l; do
			text 6 >"t/d$d/$f.txt"
		done
		ln -s ../d0/a.txt "t/d$d/link"
	done
	find t -exec touch -h -d '2024-05-06 07:08:09 UTC' {} +
}

# csource FUNCTIONS: a C file that needs no header
csource() {
	awk -v n="$1" 'BEGIN {
		print "struct s { int a; long b; struct s *next; };"
		for (i = 0; i < n; i++) {
			printf "long f%d(struct s *p, int n)\n{\n\tlong sum = %d;\n", i, i
			print "\tfor (int i = 0; i < n && p; i++, p = p->next) {"
			printf "\t\tswitch (p->a %% 5) {\n\t\tcase 0: sum += p->b; break;\n"
			printf "\t\tcase 1: sum ^= p->b << %d; break;\n\t\tcase 3: sum *= 3; break;\n", i % 7
			printf "\t\tdefault: sum -= p->a + i;\n\t\t}\n\t}\n\treturn sum;\n}\n"
		}
		print "int main(void)\n{\n\tstruct s one = { 1, 2, 0 };\n\tlong r = 0;"
		for (i = 0; i < n; i++) printf "\tr += f%d(&one, 3);\n", i
		print "\treturn r == 1;\n}"
	}'
}

# repository COMMITS: a git repository in the current directory
repository() {
	git init -q -b main .
	git config user.name deja
	git config user.email deja@example.org
	git config gc.auto 0
	mkdir src
	for i in $(seq "$1"); do
		text "$((20 + i))" | sed "s/crash/crash $i/" >"src/file$((i % 5)).txt"
		git add src
		GIT_AUTHOR_DATE="2024-01-02 03:04:$((i % 60)) +0000" \
			GIT_COMMITTER_DATE="2024-01-02 03:04:$((i % 60)) +0000" \
			git commit -q -m "change $i"
	done
}
