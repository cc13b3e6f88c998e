#include "support/generated_model.h"

namespace sinew::test {

Result<std::string> generate_model(const std::string& generator, const TemporaryFolder& folder,
                                   std::string_view kind, std::string_view type, int context) {
  const std::string path = folder.file(fmt::format("{}-{}.gguf", kind, type));
  SINEW_TRY(run_checked({generator, std::string(kind), path, "--type", std::string(type),
                         "--context", std::to_string(context)},
                        {}, std::chrono::seconds(60)));
  return path;
}

}  // namespace sinew::test
