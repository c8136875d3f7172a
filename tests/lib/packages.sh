# Shell functions for scripts that need Debian packages; sourced by check and demo.
#
# What building takes:
BUILD_PACKAGES="gcc libc6-dev make autoconf automake pkg-config libcapstone-dev libzstd-dev libxxhash-dev libunwind-dev libdw-dev libiberty-dev"
# and what the tests take besides:
TEST_PACKAGES="libcunit1-dev gdb python3 clang-format g++ strace valgrind"
# and what only ./check --all installs (a test without says left_out, tests/lib/shell.sh):
ALL_PACKAGES="lldb clang chromium bolt-16 lcov"

# lacking PACKAGE...: those that are not installed (none where dpkg does not say)
lacking() {
	command -v dpkg-query >/dev/null || return 0
	for package; do
		case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
		installed) ;;
		*) printf '%s ' "$package" ;;
		esac
	done
}

# install PACKAGE...: install what is lacking, or say what to install; false if that was needed
# and could not be done
install_packages() {
	set -- $(lacking "$@")
	[ $# -gt 0 ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "Debian packages are missing; as root: apt-get install $*" >&2
		return 1
	fi
	echo "Installing $*"
	# a package list that is there saves asking for a new one
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" \
		</dev/null >/dev/null 2>&1 && return 0
	apt-get update -q </dev/null >/dev/null &&
		DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" \
			</dev/null >/dev/null
}

# quietly COMMAND...: what it says is shown if it fails, or if there is a warning in it, which is a
# failure, too
quietly() {
	local said status
	said=$("$@" 2>&1)
	status=$?
	[ $status = 0 ] && ! grep -qi 'warning' <<<"$said" && return
	printf '%s\n' "$said" >&2
	[ $status != 0 ] || echo "$1: warnings (above)" >&2
	return 1
}

# make_configure: generate what the build needs if it is missing or out of date
make_configure() {
	for input in configure.ac Makefile.am; do
		for output in configure Makefile.in config.h.in; do
			[ -e "$output" ] && [ ! "$input" -nt "$output" ] && continue
			quietly autoreconf -fi
			return
		done
	done
}
