#include "engine/verify.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "engine/record.h"
#include "host/process.h"

namespace sinew {
namespace {

using State = VerifyCheck::State;

class Verification {
 public:
  Verification(const VerifyOptions& options, const std::function<bool()>& wanted,
               const std::function<void(const std::string&)>& progress)
      : options_(options), wanted_(wanted), progress_(progress) {}

  Result<VerifyReport> run() {
    if (const Status opened = open(); !opened) {
      SINEW_TRY(add_failure("file", opened.error()));
      return std::move(report_);
    }
    SINEW_TRY(find_reference());
    if (!options_.record.empty()) return std::move(report_);
    for (const Layout& layout : options_.layouts) SINEW_TRY(compare(layout));
    const bool compared = std::any_of(
        report_.checks.begin(), report_.checks.end(),
        [](const VerifyCheck& check) { return check.canary || check.state == State::kFailed; });
    if (!compared)
      add(State::kFailed, "computation",
          "nothing was compared: name a split that the model allows with --ranks or --shares");
    return std::move(report_);
  }

 private:
  void add(State state, std::string name, std::string detail) {
    report_.checks.push_back({state, std::move(name), std::move(detail), std::nullopt});
  }
  // An error of a check is the check's result, except that the user wants no more.
  Status add_failure(std::string name, const Error& error) {
    if (error.code == ErrorCode::kCancelled) return fail(error);
    const bool skipped = options_.may_skip &&
                         (error.code == ErrorCode::kUsage || error.code == ErrorCode::kNoMemory);
    add(skipped ? State::kSkipped : State::kFailed, std::move(name), error.message);
    return {};
  }

  Status open() {
    SINEW_ASSIGN(ModelFile file, ModelFile::open(options_.launch.model_path));
    file_.emplace(std::move(file));
    SINEW_ASSIGN(spec_, read_spec(file_->directory));
    SINEW_ASSIGN(bound_, bind_tensors(spec_, file_->directory));
    std::uint64_t bytes = 0;
    for (const MappedFile& part : file_->parts) bytes += part.bytes().size();
    add(State::kOk, "file",
        fmt::format("{}: {}, {} layers, {} tensors, {}", spec_.name, spec_.architecture,
                    spec_.layers, bound_.size(), format_bytes(bytes)));
    return {};
  }

  // Loads the layout and proves what its ranks hold; null if it cannot be loaded.
  Result<std::unique_ptr<LocalEngine>> launch(const Layout& layout, int chunk_tokens,
                                              bool is_reference) {
    const std::string name = describe_layout(layout);
    auto lists = check_lists(layout);
    if (!lists) {
      SINEW_TRY(add_failure("coverage, " + name, lists.error()));
      return std::unique_ptr<LocalEngine>();
    }
    LaunchOptions launch = options_.launch;
    launch.layout = layout;
    launch.chunk_tokens = chunk_tokens;
    launch.hashes = options_.hashes;
    if (launch.context == 0 || !options_.against.empty())
      launch.context = static_cast<std::int64_t>(prompt_.size()) + greedy_tokens_ + 1;
    if (is_reference) launch.faults.clear();
    const int ranks = static_cast<int>(layout.shares.size());
    launch.threads = options_.threads != 0 ? options_.threads : std::max(1, usable_cores() / ranks);
    progress_(name + ": loading");
    auto engine = LocalEngine::load(std::move(launch), [](const std::vector<RankStatus>&) {});
    if (!engine) {
      SINEW_TRY(add_failure("loading, " + name, engine.error()));
      return std::unique_ptr<LocalEngine>();
    }
    progress_(name + ": hashing what the ranks hold");
    const auto held = check_slices(**engine, *lists);
    if (!held) SINEW_TRY(add_failure("slices, " + name, held.error()));
    if (held) add(State::kOk, "slices, " + name, *held);
    return std::move(*engine);
  }

  Result<std::vector<std::vector<LoadItem>>> check_lists(const Layout& layout) {
    SINEW_ASSIGN(const Plan plan, make_plan(spec_, bound_, layout));
    std::vector<std::vector<LoadItem>> lists;
    for (Rank rank = 0; rank < plan.ranks; ++rank)
      lists.push_back(make_load_list(bound_, plan, rank));
    SINEW_TRY(check_coverage(bound_, plan, lists));
    return lists;
  }

  // What was compared, in words.
  Result<std::string> check_slices(LocalEngine& engine,
                                   const std::vector<std::vector<LoadItem>>& lists) {
    SINEW_ASSIGN(const auto held, engine.slice_hashes(wanted_));
    std::uint64_t bytes = 0;
    std::size_t slices = 0;
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      SINEW_TRY(compare_hashes(*file_, lists[rank], options_.hashes, static_cast<Rank>(rank),
                               held[rank], [&] { return !wanted_(); }));
      const auto chosen = choose_blocks(lists[rank], options_.hashes);
      slices += lists[rank].size();
      for (std::size_t i = 0; i < chosen.size(); ++i)
        for (const std::uint32_t block : chosen[i])
          bytes +=
              std::min(kHashBlockBytes, lists[rank][i].bytes.total() - block * kHashBlockBytes);
    }
    return fmt::format("{} slices cover the file as the rules say; {} of them hashed, equal to it",
                       slices, format_bytes(bytes));
  }

  Result<CanaryRun> compute(LocalEngine& engine, const std::string& what, Trace trace,
                            std::vector<TokenId> fed) {
    CanaryPlan plan;
    plan.prompt = prompt_;
    plan.greedy_tokens = greedy_tokens_;
    plan.fed = std::move(fed);
    plan.trace = trace;
    return run_canary(engine, plan, wanted_, [&](std::size_t done, std::size_t total) {
      progress_(fmt::format("{}: {} of {} tokens", what, done, total));
    });
  }

  // The recorded reference, or one computed here and, if wanted, recorded.
  Status find_reference() {
    prompt_ = options_.prompt;
    greedy_tokens_ = options_.greedy_tokens;
    chunk_tokens_ = options_.launch.chunk_tokens;
    if (!options_.against.empty()) {
      const Status read = read_reference();
      return read ? read : add_failure("record", read.error());
    }
    SINEW_ASSIGN(const std::unique_ptr<LocalEngine> engine,
                 launch(options_.reference, chunk_tokens_, true));
    if (engine == nullptr) return need_reference();
    const std::string name = describe_layout(options_.reference);
    auto run = compute(*engine, name, Trace::kOn, {});
    if (!run) return add_failure("reference, " + name, run.error());
    auto noisy = compute(*engine, name + " with noise", Trace::kNoisy, run->greedy);
    if (!noisy) return add_failure("noise, " + name, noisy.error());
    reference_ = make_reference(std::move(*run), *noisy, spec_.layers, spec_.experts.count > 0);
    add(State::kOk, "reference, " + name,
        fmt::format("{} tokens in steps of {}, {} greedy tokens after them", prompt_.size(),
                    chunk_tokens_, greedy_tokens_));
    return options_.record.empty() ? Status() : record(name);
  }

  // Without a reference nothing is proven about the computation: never merely left out.
  Status need_reference() {
    VerifyCheck& last = report_.checks.back();
    last.state = State::kFailed;
    last.detail +=
        "; or record the reference on a machine that holds the model, with 'sinew verify MODEL "
        "--record FILE', and compare with --against FILE";
    return {};
  }

  Status record(const std::string& layout) {
    progress_("hashing the file");
    SINEW_ASSIGN(ModelIdentity identity,
                 identify(*file_, options_.hashes == HashScope::kAll, [&] { return !wanted_(); }));
    const Status written = write_record(
        options_.record,
        {options_.program, layout, chunk_tokens_, std::move(identity), std::move(*reference_)});
    if (!written) return add_failure("record", written.error());
    add(State::kOk, "record", "written to " + options_.record);
    return {};
  }

  Status read_reference() {
    SINEW_ASSIGN(Record record, read_record(options_.against));
    progress_("hashing the file");
    SINEW_ASSIGN(const ModelIdentity identity,
                 identify(*file_, options_.hashes == HashScope::kAll, [&] { return !wanted_(); }));
    SINEW_TRY(same_model(record.model, identity));
    if (record.reference.layers != spec_.layers || record.chunk_tokens < 1 ||
        record.chunk_tokens > kChunkTokensMax)
      return fail(ErrorCode::kInvalidFile, "{}: has {} layers in steps of {} tokens",
                  options_.against, record.reference.layers, record.chunk_tokens);
    prompt_ = record.reference.run.prompt;
    greedy_tokens_ = static_cast<int>(record.reference.run.greedy.size());
    chunk_tokens_ = record.chunk_tokens;
    add(State::kOk, "record",
        fmt::format("{}: by sinew {} on {}, {} tokens and {} greedy ones", options_.against,
                    record.program, record.layout, prompt_.size(), greedy_tokens_));
    reference_ = std::move(record.reference);
    return {};
  }

  Status compare(const Layout& layout) {
    const std::string name = describe_layout(layout);
    SINEW_ASSIGN(const std::unique_ptr<LocalEngine> engine, launch(layout, chunk_tokens_, false));
    if (engine == nullptr || !reference_) return {};
    const auto run = compute(*engine, name, Trace::kOn, reference_->run.greedy);
    if (!run) return add_failure("computation, " + name, run.error());
    VerifyCheck check;
    check.name = "computation, " + name;
    check.canary = compare_runs(*reference_, *run);
    const CanaryReport& canary = *check.canary;
    check.state = canary.ok() ? State::kOk : State::kFailed;
    const std::string logits =
        fmt::format("logits: median KL {:.2g}, worst {:.2g}, largest difference {:.2g}; {}",
                    canary.kl_median, canary.kl_worst, canary.logit_difference, canary.greedy);
    check.detail =
        canary.ok() ? fmt::format("{} places of every layer within rounding; {}",
                                  canary.places.size(), logits)
                    : fmt::format(
                          "first at {} ({}): if the slices are equal to the file, the link or a "
                          "rank's computation is at fault; try --link tcp, --device CPU and fewer "
                          "ranks to see which",
                          canary.first_fault, logits);
    report_.checks.push_back(std::move(check));
    return {};
  }

  const VerifyOptions& options_;  // outlives this, as do the functions
  const std::function<bool()>& wanted_;
  const std::function<void(const std::string&)>& progress_;
  VerifyReport report_;
  std::optional<ModelFile> file_;
  ModelSpec spec_;
  std::vector<BoundTensor> bound_;
  std::vector<TokenId> prompt_;
  int greedy_tokens_ = 0;
  int chunk_tokens_ = 0;
  std::optional<Reference> reference_;
};

}  // namespace

bool VerifyReport::ok() const {
  return std::none_of(checks.begin(), checks.end(),
                      [](const VerifyCheck& check) { return check.state == State::kFailed; });
}

std::string describe_layout(const Layout& layout) {
  const std::size_t ranks = layout.shares.size();
  std::string text = fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
  if (std::adjacent_find(layout.shares.begin(), layout.shares.end(), std::not_equal_to<>()) !=
      layout.shares.end())
    text += fmt::format(" of weights {}", fmt::join(layout.shares, ","));
  if (!layout.stages.empty()) text += fmt::format(", stages {}", fmt::join(layout.stages, ","));
  if (layout.whole_experts) text += ", whole experts";
  return text;
}

Result<VerifyReport> verify_model(const VerifyOptions& options, const std::function<bool()>& wanted,
                                  const std::function<void(const std::string&)>& progress) {
  if (options.against.empty() && (options.prompt.empty() || options.greedy_tokens < 1))
    return fail(ErrorCode::kUsage, "there are no tokens to compute");
  return Verification(options, wanted, progress).run();
}

}  // namespace sinew
