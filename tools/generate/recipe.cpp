#include "recipe.h"

namespace sinew::generate {

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = [] {
    std::vector<Kind> all;
    for (const auto& family : {llama_kinds(), qwen_kinds(), glm_kinds(), gpt_oss_kinds(),
                               minimax_kinds(), gemma_kinds(), deepseek_kinds()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return list;
}

Result<Recipe> make_recipe(std::string_view kind, const Options& options) {
  for (const Kind& candidate : kinds())
    if (candidate.name == kind) return candidate.make(options);
  return fail(ErrorCode::kUsage, "'{}' is no kind of model; --list shows those that are", kind);
}

}  // namespace sinew::generate
