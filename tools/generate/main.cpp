// sinew-generate: writes models with random weights for tests and benchmarks. They answer nonsense,
// but have every tensor and key of their family.
#include <fmt/format.h>
#include <ggml.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "host/model_file.h"
#include "recipe.h"
#include "write_model.h"

namespace sinew::generate {
namespace {

struct Arguments {
  std::string kind;
  std::string path;
  std::string type;
  std::string attention_type;
  std::string expert_type;
  std::string vocabulary_from;
  std::uint64_t seed = 1;
  std::uint32_t context = 0;
  std::uint32_t experts = 0;
  unsigned threads = 0;
  bool tied = false;
  bool prediction_layer = false;
  bool head_norms = false;
  bool list = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.footer("Example: sinew-generate tiny-ds ds.gguf --type q4_0 --seed 7");
  app.add_option("kind", arguments.kind, "Which model; --list shows them")->option_text("KIND");
  app.add_option("file", arguments.path, "The file to write")->option_text("FILE.gguf");
  app.add_option("--type", arguments.type,
                 "Type of all matrices: f32, f16, bf16, q8_0, q4_K, iq2_xxs, ..; mixed: another "
                 "one for each matrix");
  app.add_option("--attention-type", arguments.attention_type, "Type of the attention's matrices");
  app.add_option("--expert-type", arguments.expert_type, "Type of the feed-forward matrices");
  app.add_option("--context", arguments.context, "Context length written into the file")
      ->check(CLI::Range(1, 1 << 22));
  app.add_option("--experts", arguments.experts, "Number of experts")->check(CLI::Range(1, 1024));
  app.add_option("--seed", arguments.seed, "Seed of the weights (default 1)");
  app.add_option("--vocab-from", arguments.vocabulary_from, "Take the vocabulary of this model");
  app.add_option("--threads", arguments.threads, "Threads (default: one a processor)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--tied", arguments.tied, "Leave the output layer out: it is the embedding");
  app.add_flag("--mtp", arguments.prediction_layer,
               "Add a layer for multi-token prediction, which a plain run skips");
  app.add_flag("--qk-norm", arguments.head_norms, "Add norms of each query's and key's head");
  app.add_flag("--list", arguments.list, "Show the kinds");
}

Result<std::optional<TensorType>> type_option(const char* flag, const std::string& text) {
  if (text.empty()) return std::optional<TensorType>();
  const std::optional<TensorType> type = tensor_type_named(text);
  // What ggml can quantise. Q8_1 and Q8_K are for activations only.
  const auto usable = [](TensorType candidate) {
    const auto ggml = static_cast<ggml_type>(candidate);
    if (candidate == TensorType::kF32 || candidate == TensorType::kF16 ||
        candidate == TensorType::kBF16)
      return true;
    return ggml_is_quantized(ggml) && candidate != TensorType::kQ8_1 &&
           candidate != TensorType::kQ8_K;
  };
  if (!type || !usable(*type))
    return fail(ErrorCode::kUsage,
                "{} {}: choose f32, f16, bf16, or a quantised type such as q8_0, q4_0, q4_K, q6_K",
                flag, text);
  return type;
}

Status run(const Arguments& arguments) {
  if (arguments.kind.empty() || arguments.path.empty())
    return fail(ErrorCode::kUsage, "name a kind and a file, as in: sinew-generate tiny-ds ds.gguf");
  Options options;
  options.mixed = arguments.type == "mixed";
  if (!options.mixed) {
    SINEW_ASSIGN(options.type, type_option("--type", arguments.type));
  }
  SINEW_ASSIGN(options.attention_type, type_option("--attention-type", arguments.attention_type));
  SINEW_ASSIGN(options.expert_type, type_option("--expert-type", arguments.expert_type));
  if (arguments.context != 0) options.context = arguments.context;
  if (arguments.experts != 0) options.experts = arguments.experts;
  options.tied = arguments.tied;
  options.prediction_layer = arguments.prediction_layer;
  options.head_norms = arguments.head_norms;
  std::optional<ModelFile> source;
  if (!arguments.vocabulary_from.empty()) {
    SINEW_ASSIGN(source, ModelFile::open(arguments.vocabulary_from));
    options.vocabulary = &source->directory.metadata();
  }
  SINEW_ASSIGN(Recipe recipe, make_recipe(arguments.kind, options));
  for (const std::string& note : recipe.notes) fmt::print(stderr, "{}\n", note);
  const std::size_t tensors = recipe.weights.size();
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  SINEW_ASSIGN(const std::uint64_t size,
               write_model(arguments.path, std::move(recipe), arguments.seed,
                           arguments.threads != 0 ? arguments.threads : processors));
  fmt::print("{}: {} tensors, {}\n", arguments.path, tensors, format_bytes(size));
  return {};
}

}  // namespace
}  // namespace sinew::generate

int main(int argc, char** argv) {
  using namespace sinew;
  CLI::App app{"Writes a model with random weights for tests and benchmarks."};
  generate::Arguments arguments;
  generate::declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_status(ErrorCode::kUsage);
  }
  if (arguments.list) {
    for (const generate::Kind& kind : generate::kinds())
      fmt::print("{:<20} {}\n", kind.name, kind.description);
    return 0;
  }
  const Status status = generate::run(arguments);
  if (status) return 0;
  fmt::print(stderr, "sinew-generate: {}\n", status.error().message);
  return exit_status(status.error().code);
}
