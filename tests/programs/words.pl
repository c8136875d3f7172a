# Hashes, regular expressions, sorting, formats.
use strict;
use warnings;
my (%seen, $total);
open my $in, '<', 'text' or die "text: $!";
while (<$in>) {
	chomp;
	s/(\w+)\s+(\w+)/$2 $1/;
	$seen{lc $1}++ while /(\w+)/g;
	$total += $1 if /(\d+)$/;
}
my @top = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
printf "%-12s %5d\n", $_, $seen{$_} for @top[0 .. 5];
print "total $total, ", 2 ** 300, "\n";
print join(',', map { sprintf '%.4f', sqrt } 1 .. 6), "\n";
print scalar reverse('elbaemit'), ' ', eval { die "caught\n" } || $@;
