# Associative arrays, fields, number formatting. Variable: rounds.
BEGIN {
	seed = 7
	for (r = 0; r < rounds; r++) {
		line = ""
		for (i = 0; i < 60; i++) {
			seed = (seed * 69069 + 1) % 16777216
			line = line sprintf(" k%d:%d", seed % 97, i)
		}
		n = split(line, field, " ")
		for (i = 1; i <= n; i++) {
			split(field[i], part, ":")
			sum[part[1]] += part[2]
			if (field[i] ~ /^k[0-9]*7:/)
				hits++
		}
		gsub(/[0-9]+/, "#", line)
		size += length(line)
	}
	for (k in sum)
		total += sum[k]
	print total, hits, size
}
