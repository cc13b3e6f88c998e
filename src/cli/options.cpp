#include "cli/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/limits.h"
#include "engine/rank_main.h"
#include "host/process.h"

namespace sinew {
namespace {

constexpr int kThreadsMax = 512;
constexpr double kTimeoutMax = 3600;
constexpr double kRecoverSeconds = 300;

std::optional<LinkKind> link_kind_named(std::string_view name) {
  if (name == "shm") return LinkKind::kShm;
  if (name == "tcp") return LinkKind::kTcp;
  if (name == "verbs") return LinkKind::kVerbs;
  if (name == "ucx") return LinkKind::kUcx;
  return std::nullopt;
}

}  // namespace

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("--ranks", ranks,
                 "Processes to split the model over, 1 to 8 (default: one for each share, else 1)");
  app.add_option("--shares", shares, "Weight of each rank, as in 3,3,1,1 (default: equal)")
      ->delimiter(',');
  app.add_option("--stages", stages,
                 "Ranks of each pipeline stage, as in 2,2 (default: all ranks hold every layer)")
      ->delimiter(',');
  app.add_option("--experts", experts,
                 "What ranks hold of experts: columns of each, or whole ones (default: columns)");
  app.add_option("--threads", threads,
                 "Threads of each rank (default: the cores divided by the ranks)");
  app.add_option(
      "--link", link,
      "How ranks talk: shm, tcp, verbs (RDMA) or ucx (default: shm; tcp with --launcher)");
  app.add_option("--verbs-device", verbs.devices,
                 "RDMA devices to use, as rdma_en3,rdma_en4 (default: by the ranks' addresses)")
      ->delimiter(',');
  app.add_option("--verbs-gid-index", verbs.gid_index,
                 "Index of the device's address (default: that of its IPv4 address)");
  app.add_option("--verbs-qp", verbs_qp,
                 "Kind of connection: rc or uc (default: rc; on Apple's systems uc)");
  app.add_option("--verbs-slot", verbs.slot_bytes,
                 "Bytes of one message, a multiple of 4096 (default: 16384)");
  app.add_flag("--verbs-or-tcp", verbs.fall_back_to_tcp,
               "Use TCP for all ranks where verbs cannot be used, with a warning");
  app.add_option(
      "--launcher", launcher,
      "Who has started one process a rank: mpi, slurm or env (default: nobody; ranks are "
      "started here)");
  app.add_option(
      "--device", device,
      "Device of ggml to compute on, as CPU (default: the first accelerator, else the CPU)");
  app.add_option("--ctx", context,
                 "Tokens of prompt and answer together (default: the model's, at most 8192)");
  app.add_option("--cache-type", cache_type,
                 "Type of the KV cache: f16, q8_0, q4_0 (default: f16)");
  app.add_option("--chunk", chunk, "Tokens of a prompt computed in one step (default: 512)");
  app.add_option(
      "--timeout", timeout_seconds,
      "Seconds after which a rank that is late in a collective is given up (default: 30)");
  app.add_option("--recover", recover_seconds,
                 "Seconds in which a lost rank must be back, while answers wait; 0 ends everything "
                 "(default: 300)");
  app.add_flag("--recover-exactly", recover_exactly,
               "After a loss compute an answer's tokens again one by one: slower, but no near-tie "
               "turns");
  app.add_option("--wire", wire,
                 "How sums travel between ranks: f32, or bf16 or f16 in half the bytes and less "
                 "exact (default: f32)");
  app.add_option("--one-shot-max", one_shot_max,
                 "Bytes up to which ranks send each other whole vectors (default: measured)");
  app.add_flag("--verbose", verbose, "Show processes, memory and times of every rank");
}

Status ModelFlags::lead_or_serve(const std::function<Status()>& lead) {
  if (launcher.empty()) return lead();
  const std::optional<Launcher> known = launcher_named(launcher);
  if (!known)
    return fail(ErrorCode::kUsage, "--launcher {} is not known; there are mpi, slurm and env",
                launcher);
  SINEW_ASSIGN(const LaunchedRank own,
               read_launched_rank(*known, [](const char* name) { return std::getenv(name); }));
  if (own.rank > 0) {
    SINEW_ASSIGN(Descriptor control,
                 join_rank_zero(own, std::chrono::steady_clock::now() + kJoinMax));
    serve_as_rank(std::move(control));
  }
  launched = own;
  return lead();
}

Result<LaunchOptions> ModelFlags::launch_options() const {
  LaunchOptions options;
  options.model_path = model;
  const int count =
      launched ? launched->size : ranks.value_or(std::max(1, static_cast<int>(shares.size())));
  if (launched && ranks.value_or(count) != count)
    return fail(ErrorCode::kUsage, "--ranks {}, but --launcher {} started {}", *ranks, launcher,
                count);
  if (count < 1 || count > kRankCountMax)
    return fail(ErrorCode::kUsage, "--ranks {} is not possible; 1 to {} are", count, kRankCountMax);
  if (!shares.empty() && shares.size() != static_cast<std::size_t>(count))
    return fail(ErrorCode::kUsage, "--shares names {} ranks and --ranks {}; give one share a rank",
                shares.size(), count);
  options.layout.shares =
      shares.empty() ? std::vector<double>(static_cast<std::size_t>(count), 1.0) : shares;
  for (const double share : options.layout.shares)
    if (!std::isfinite(share) || share <= 0)
      return fail(ErrorCode::kUsage,
                  "--shares {}: every rank needs a positive weight, as in --shares 3,3,1,1",
                  fmt::join(shares, ","));
  options.layout.stages = stages;
  if (experts != "columns" && experts != "whole")
    return fail(ErrorCode::kUsage, "--experts {} is not known; there are columns and whole",
                experts);
  options.layout.whole_experts = experts == "whole";
  const std::optional<TensorType> type = tensor_type_named(cache_type);
  if (!type)
    return fail(ErrorCode::kUsage, "--cache-type {} is not known; there are f16, q8_0 and q4_0",
                cache_type);
  options.cache_type = *type;
  options.launched = launched;
  options.verbose = verbose;
  SINEW_TRY(read_link(options));
  options.device = device;
  const int ranks_here = launched ? launched->on_first_machine : count;
  if (threads < 0 || threads > kThreadsMax)
    return fail(ErrorCode::kUsage, "--threads {} is outside 1 .. {}", threads, kThreadsMax);
  options.threads = threads != 0 ? threads : std::max(1, usable_cores() / ranks_here);
  if (context < 0 || context > kContextMax)
    return fail(ErrorCode::kUsage, "--ctx {} is outside 1 .. {}", context, kContextMax);
  options.context = context;
  if (chunk < 1 || chunk > kChunkTokensMax)
    return fail(ErrorCode::kUsage, "--chunk {} is outside 1 .. {}", chunk, kChunkTokensMax);
  options.chunk_tokens = chunk;
  if (!(timeout_seconds >= 0.1) || timeout_seconds > kTimeoutMax)
    return fail(ErrorCode::kUsage, "--timeout {} is outside 0.1 .. {} seconds", timeout_seconds,
                kTimeoutMax);
  const double recover = recover_seconds.value_or(launched ? 0 : kRecoverSeconds);
  if (!(recover >= 0) || recover > kTimeoutMax)
    return fail(ErrorCode::kUsage, "--recover {} is outside 0 .. {} seconds", recover, kTimeoutMax);
  if (launched && recover > 0)
    return fail(ErrorCode::kUsage,
                "--recover {}: ranks that --launcher {} has started cannot be started again",
                recover, launcher);
  options.recover_exactly = recover_exactly;
  options.recover = std::chrono::milliseconds(static_cast<std::int64_t>(recover * 1000));
  const std::optional<WireType> wire_type = wire_type_named(wire);
  if (!wire_type)
    return fail(ErrorCode::kUsage, "--wire {} is not known; there are f32, bf16 and f16", wire);
  options.wire = *wire_type;
  options.one_shot_max = one_shot_max;
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000));
  return options;
}

Status ModelFlags::read_link(LaunchOptions& options) const {
  const char* usual = launched ? "tcp" : "shm";
  const std::optional<LinkKind> kind = link_kind_named(link.empty() ? usual : link);
  if (!kind)
    return fail(ErrorCode::kUsage, "--link {} is not known; there are shm, tcp, verbs and ucx",
                link);
  if (launched && *kind == LinkKind::kShm)
    return fail(
        ErrorCode::kUsage,
        "--link shm needs ranks that were started here; with --launcher there are tcp, verbs "
        "and ucx (which uses shared memory by itself)");
  options.link = *kind;
  options.verbs = verbs;
  if (verbs_qp != "" && verbs_qp != "rc" && verbs_qp != "uc")
    return fail(ErrorCode::kUsage, "--verbs-qp {} is not known; there are rc and uc", verbs_qp);
  if (verbs_qp != "") {
    options.verbs.qp_type = verbs_qp == "rc" ? VerbsQpType::kRc : VerbsQpType::kUc;
  }
  if (verbs.slot_bytes == 0 || verbs.slot_bytes % kVerbsFrameBytes != 0 ||
      verbs.slot_bytes > kVerbsSlotBytesMax)
    return fail(ErrorCode::kUsage, "--verbs-slot {} is not a multiple of {} up to {}",
                verbs.slot_bytes, kVerbsFrameBytes, kVerbsSlotBytesMax);
  if (verbs.devices.size() > kVerbsPortsMax)
    return fail(ErrorCode::kUsage, "--verbs-device names {} devices, at most {}",
                verbs.devices.size(), kVerbsPortsMax);
  return {};
}

void SamplingFlags::add_to(CLI::App& app) {
  app.add_option("--temp", params.temperature,
                 "Temperature; 0 takes the most likely token (default: 0)");
  app.add_option("--top-k", params.top_k,
                 "Draw among the k most likely tokens; 0 for all (default: 0)");
  app.add_option("--top-p", params.top_p,
                 "Draw among the likeliest tokens that sum to p (default: 1)");
  app.add_option("--min-p", params.min_p,
                 "Leave out tokens less likely than p times the likeliest (default: 0)");
  app.add_option("--repeat-penalty", params.repeat_penalty,
                 "Divide the logits of recent tokens (default: 1)");
  app.add_option("--presence-penalty", params.presence_penalty,
                 "Subtract from the logits of recent tokens (default: 0)");
  app.add_option("--frequency-penalty", params.frequency_penalty,
                 "Subtract for every recent occurrence (default: 0)");
  app.add_option("--seed", params.seed, "Same seed, same text (default: 0)");
}

}  // namespace sinew
