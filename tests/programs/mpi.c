/* Two processes that exchange messages, for the end-to-end tests. Prints the same every time. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, size;
	long token = 1, sum, all[8] = { 0 };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < 100; i++) {
		if (rank == 0) {
			MPI_Send(&token, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			token = token * 3 % 1000003 + rank;
			MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
		}
	}
	MPI_Reduce(&token, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	token = rank * 100;
	MPI_Allgather(&token, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d processes, %ld, %ld\n", size, sum, all[size - 1]);
	MPI_Finalize();
	return 0;
}
