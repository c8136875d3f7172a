! Fortran numbers: a dense solve and a heat equation. Argument: rounds.
program numeric
  implicit none
  integer, parameter :: n = 60
  character(len=32) :: text
  integer :: rounds, r, i, j, k
  real(8) :: a(n, n), b(n), u(128, 128), w(128, 128), total
  call get_command_argument(1, text)
  read (text, *) rounds
  total = 0
  u = 0
  u(64, :) = 1
  do r = 1, rounds
    do j = 1, n
      do i = 1, n
        a(i, j) = 1d0 / (i + j + mod(r, 7)) + merge(2d0, 0d0, i == j)
      end do
      b(j) = sin(dble(j + r))
    end do
    do k = 1, n - 1
      do i = k + 1, n
        a(i, k) = a(i, k) / a(k, k)
        b(i) = b(i) - a(i, k) * b(k)
      end do
      do j = k + 1, n
        a(k + 1:n, j) = a(k + 1:n, j) - a(k + 1:n, k) * a(k, j)
      end do
    end do
    do i = n, 1, -1
      b(i) = (b(i) - dot_product(a(i, i + 1:n), b(i + 1:n))) / a(i, i)
    end do
    total = total + sum(b)
    w = u
    do j = 2, 127
      do i = 2, 127
        u(i, j) = w(i, j) + 0.2d0 * (w(i - 1, j) + w(i + 1, j) + w(i, j - 1) + w(i, j + 1) - 4 * w(i, j))
      end do
    end do
  end do
  print '(2f18.9)', total, sum(u)
end program numeric
