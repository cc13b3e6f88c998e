#include "write_model.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "fill.h"

namespace sinew::generate {
namespace {

constexpr std::uint64_t kPieceElements = 1u << 20;  // what one thread draws at a time

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

tl::unexpected<Error> io_error(const std::string& path, const char* what) {
  return fail(ErrorCode::kIo,
              "{}: cannot be {}: {}; choose a folder with room that you may write to", path, what,
              std::strerror(errno));
}

Status write(const File& file, const std::string& path, const test::Bytes& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size())
    return io_error(path, "written");
  return {};
}

Status write_weight(const File& file, const std::string& path, const Weight& weight, Filler& filler,
                    unsigned threads) {
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < weight.shape.size(); ++i) rows *= weight.shape[i];
  const std::uint64_t step = std::max<std::uint64_t>(1, kPieceElements / weight.shape.front());
  for (std::uint64_t begin = 0; begin < rows; begin += step * threads) {
    std::vector<test::Bytes> pieces(threads);
    {
      std::vector<std::jthread> workers;
      for (unsigned i = 0; i < threads; ++i) {
        const std::uint64_t first = begin + i * step;
        if (first >= rows) break;
        workers.emplace_back([&, first, i] {
          pieces[i] = filler.rows(weight, first, std::min(rows, first + step));
        });
      }
    }
    for (const test::Bytes& piece : pieces) SINEW_TRY(write(file, path, piece));
  }
  return {};
}

Status write_all(const File& file, const std::string& path, Recipe& recipe, Filler& filler,
                 unsigned threads) {
  std::uint64_t offset = 0;
  for (const Weight& weight : recipe.weights) {
    recipe.header.tensor_info(weight.name, weight.type, weight.shape, offset);
    offset =
        recipe.header.padded(offset + test::GgufWriter::tensor_bytes(weight.type, weight.shape));
  }
  SINEW_TRY(write(file, path, recipe.header.header()));
  for (const Weight& weight : recipe.weights) {
    SINEW_TRY(write_weight(file, path, weight, filler, threads));
    const std::uint64_t size = test::GgufWriter::tensor_bytes(weight.type, weight.shape);
    SINEW_TRY(write(file, path, test::Bytes(recipe.header.padded(size) - size)));
  }
  if (std::fflush(file.get()) != 0) return io_error(path, "written");
  return {};
}

}  // namespace

Result<std::uint64_t> write_model(const std::string& path, Recipe recipe, std::uint64_t seed,
                                  unsigned threads) {
  const std::string partial = path + ".partial";
  File file(std::fopen(partial.c_str(), "wb"));
  if (file == nullptr) return io_error(partial, "created");
  Filler filler(seed, threads);
  Status written = write_all(file, partial, recipe, filler, threads);
  if (std::fclose(file.release()) != 0 && written) written = io_error(partial, "written");
  std::error_code error;
  if (written) {
    std::filesystem::rename(partial, path, error);
    if (error) {
      written =
          fail(ErrorCode::kIo, "{}: cannot be renamed to {}: {}", partial, path, error.message());
    }
  }
  if (!written) {
    std::error_code ignored;  // the first error is the one to report
    std::filesystem::remove(partial, ignored);
    return fail(std::move(written).error());
  }
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, "{}: cannot be examined: {}", path, error.message());
  return size;
}

}  // namespace sinew::generate
