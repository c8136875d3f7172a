! Gaussian elimination in double precision, and sums in three kinds of real.
program linear
  implicit none
  integer, parameter :: n = 60
  real(8) :: a(n, n), b(n), x(n), f
  real(4) :: s4
  real(10) :: s10
  complex(8) :: z
  integer :: i, j, k
  do i = 1, n
    do j = 1, n
      a(i, j) = 1.0d0 / (i + j - 1) + merge(2.0d0, 0.0d0, i == j)
    end do
    b(i) = sqrt(real(i, 8))
  end do
  do k = 1, n - 1
    do i = k + 1, n
      f = a(i, k) / a(k, k)
      a(i, k:n) = a(i, k:n) - f * a(k, k:n)
      b(i) = b(i) - f * b(k)
    end do
  end do
  do i = n, 1, -1
    x(i) = (b(i) - dot_product(a(i, i+1:n), x(i+1:n))) / a(i, i)
  end do
  s4 = 0
  s10 = 0
  z = (0.0d0, 0.0d0)
  do i = 1, n
    s4 = s4 + sin(real(x(i), 4))
    s10 = s10 + exp(real(x(i), 10))
    z = z + exp(cmplx(0.0d0, x(i), 8))
  end do
  print '(3f18.12)', x(1:9)
  print '(a, f12.6, a, f22.16, a, 2es20.12)', 'sums', s4, ' ', s10, ' ', z
end program
