#include "cli/token_file.h"

#include <fstream>

#include "base/limits.h"

namespace sinew {
namespace {

constexpr std::uintmax_t kTokensFileMax = kContextMax * sizeof(TokenId);

}  // namespace

Result<std::vector<TokenId>> read_tokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return fail(ErrorCode::kNotFound, "{}: cannot be opened", path);
  const auto size = static_cast<std::uintmax_t>(file.tellg());
  if (size % sizeof(TokenId) != 0 || size > kTokensFileMax)
    return fail(ErrorCode::kUsage, "{}: {} bytes are no list of int32 tokens", path, size);
  std::vector<TokenId> tokens(size / sizeof(TokenId));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(tokens.data()), static_cast<std::streamsize>(size));
  if (!file) return fail(ErrorCode::kIo, "{}: cannot be read", path);
  return tokens;
}

}  // namespace sinew
