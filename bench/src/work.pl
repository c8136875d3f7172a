# Hashes, regular expressions and string building. Argument: rounds.
use strict;
use warnings;

my $rounds = shift;
my $total = 0;
for my $round (1 .. $rounds) {
	my %count;
	my $text = join ' ', map { "key" . ($_ * 7919 % 211) . "=" . ($_ ^ $round) } 1 .. 600;
	while ($text =~ /(key\d+)=(\d+)/g) {
		$count{$1} += $2;
	}
	my @best = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
	(my $copy = $text) =~ s/(\d+)/<$1>/g;
	$copy =~ tr/a-z/A-Z/;
	$total += length($copy) + $count{$best[0]};
	my @grid = map { [ map { $_ % 7 } 1 .. 30 ] } 1 .. 30;
	for my $i (0 .. 29) {
		for my $j (0 .. 29) {
			$total += $grid[$i][$j] * $grid[$j][$i];
		}
	}
}
print "$total\n";
