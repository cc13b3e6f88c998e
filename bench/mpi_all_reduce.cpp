// The peer of all_reduce_bench.cpp: the same sizes, repeats and output with MPI_Allreduce.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (std::size_t bytes = 4u << 10; bytes <= 16u << 20; bytes *= 2) {
    std::vector<float> data(bytes / sizeof(float), 1.0f);
    const int repeats = static_cast<int>(std::clamp<std::size_t>((64u << 20) / bytes, 20, 3000));
    std::vector<double> times;
    for (int i = 0; i < repeats + repeats / 10 + 1; ++i) {
      const auto start = std::chrono::steady_clock::now();
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      if (i > repeats / 10) times.push_back(time.count());
    }
    if (rank != 0) continue;
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const double late = times[times.size() * 99 / 100];
    std::printf("%d %zu %.2f %.2f %.3f\n", size, bytes, median, late,
                static_cast<double>(bytes) / median * 1e-3);
    std::fflush(stdout);
  }
  MPI_Finalize();
}
