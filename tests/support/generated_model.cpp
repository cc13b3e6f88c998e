#include "support/generated_model.h"

namespace sinew::test {

Result<std::string> generate_model(const std::string& generator, const TemporaryFolder& folder,
                                   std::string_view kind, std::string_view type, int context,
                                   const std::vector<std::string>& more) {
  std::string name = fmt::format("{}-{}", kind, type);
  for (const std::string& flag : more) name += flag;
  const std::string path = folder.file(name + ".gguf");
  std::vector<std::string> arguments{
      generator,   std::string(kind),      path, "--type", std::string(type),
      "--context", std::to_string(context)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  // A few seconds of one processor; much longer where other tests run beside it.
  SINEW_TRY(run_checked(arguments, {}, std::chrono::seconds(180)));
  return path;
}

}  // namespace sinew::test
