// The peer of `sinew bench collectives --only measured`: MPI_Allreduce with the same repeats.
//   mpirun -np RANKS mpi_all_reduce MOST_REPEATS BYTES..
// One line a size: "bytes p50_us p99_us", of rank 0.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long most = argc > 1 ? std::atol(argv[1]) : 1000;
  for (int argument = 2; argument < argc; ++argument) {
    const long bytes = std::atol(argv[argument]);
    std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float), 1.0f);
    const long repeats = std::max(std::min(5L, most), std::min(most, (256L << 20) / bytes));
    const long warm_up = 1 + repeats / 10;
    std::vector<double> times;
    for (long i = 0; i < warm_up + repeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      if (i >= warm_up) times.push_back(time.count());
      std::fill(data.begin(), data.end(), 1.0f);
    }
    if (rank != 0) continue;
    std::sort(times.begin(), times.end());
    std::printf("%ld %.2f %.2f\n", bytes, times[times.size() / 2], times[times.size() * 99 / 100]);
    std::fflush(stdout);
  }
  MPI_Finalize();
}
