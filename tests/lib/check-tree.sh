#!/bin/bash
# What a look at the sources can tell: rooms, names, sizes, files that are named.
# Runs in a build directory, in which everything is built; srcdir is the source's.
set -u
lib=$(cd "${srcdir:-.}" && pwd)/tests/lib
failed=0
check() {
	echo "-- $*"
	python3 "$lib/$@" || failed=1
}
check check-rooms.py "$PWD"
check check-sizes.py
check check-paths.py
exit $failed
