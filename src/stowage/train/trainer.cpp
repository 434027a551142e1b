#include "stowage/train/trainer.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "stowage/base/bytes.h"
#include "stowage/base/median.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/io/files.h"
#include "stowage/io/tensor_slice.h"
#include "stowage/tune/kernel_times.h"
#include "stowage/tune/run_trace.h"
#include "stowage/train/mesh_checkpoint.h"
#include "stowage/train/progress_events.h"
#include "stowage/train/step.h"

namespace stow {
namespace {

constexpr int64_t kKeptCheckpoints = 3;
constexpr size_t kShownWaits = 5;
constexpr int64_t kTimedSteps = 20;  // whose kernels' times are kept where a trace is asked for

constexpr int kInterrupts[] = {SIGINT, SIGTERM};
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t came_from[2] = {0, 0};  // a launcher, others
pid_t launcher = 0;                                // 0 for none
// A signal to a group of processes may come twice: by itself, and handed on by the launcher.
void on_interrupt(int signal, siginfo_t* info, void*) {
  const bool is_own = launcher != 0 && info->si_code == SI_USER && info->si_pid == launcher;
  volatile std::sig_atomic_t& came = came_from[is_own ? 0 : 1];
  if (came) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  came = 1;
  interrupted = 1;
}

// While it lives, Ctrl-C or SIGTERM asks the run to stop after the step; a second one kills it.
// What was ignored before, as a shell does with SIGINT for what it runs in the background, stays
// so. Where a reader of what is printed ends, the write fails, after which comes a checkpoint.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    came_from[0] = 0;
    came_from[1] = 0;
    const Result<comm::Launch> launch = comm::launch_of_environment();
    launcher = launch && launch->by == comm::Launch::By::kLauncher ? ::getppid() : 0;
    struct sigaction action {};
    action.sa_sigaction = on_interrupt;
    action.sa_flags = SA_SIGINFO;
    for (size_t k = 0; k < std::size(kInterrupts); ++k) {
      sigaction(kInterrupts[k], nullptr, &before_[k]);
      if (before_[k].sa_handler != SIG_IGN) sigaction(kInterrupts[k], &action, nullptr);
    }
    action = {};
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &before_pipe_);
  }
  ~InterruptGuard() {
    for (size_t k = 0; k < std::size(kInterrupts); ++k)
      sigaction(kInterrupts[k], &before_[k], nullptr);
    sigaction(SIGPIPE, &before_pipe_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_[std::size(kInterrupts)], before_pipe_;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

float read_float(const DeviceBufferPtr& buffer) {
  float value;
  buffer->read(0, std::as_writable_bytes(std::span(&value, 1)));
  return std::isnan(value) ? std::abs(value) : value;  // a NaN of either sign is one
}

std::string format_duration(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

class Run {
 public:
  Run(const Job& job, const JobPlan& plan, const Budgets& budgets, const RunOptions& options,
      Positions& positions, std::unique_ptr<TrainData> data)
      : job_(job),
        config_(job.config()),
        plan_(plan),
        budget_bytes_(budgets[0].value_or(Device::unlimited_bytes())),
        options_(options),
        data_(std::move(data)),
        data_digest_(data_->digest()),
        positions_(positions),
        device_(&positions.device(0)) {}

  Result<int> run() {
    try {
      return run_all();
    } catch (const DiskError& error) {
      end_line();
      return stopped_by(error.what());
    }
  }

 private:
  std::string last_checkpoint() const { return saved_.empty() ? "none" : saved_; }
  Failure stopped_by(std::string_view what) const {
    return fail("{}; the run stops after step {}, the last checkpoint is {}", what, step_,
                last_checkpoint());
  }

  Result<int> run_all() {
    if (Result<void> started = start(); !started) return started.failure();
    if (Result<void> begun = events_.begin(config_.train.tensorboard, step_ + 1); !begun)
      return begun.failure();
    const InterruptGuard guard;
    begin_s_ = now_s();
    first_step_ = step_;
    int status = 0;
    // One that an interruption left out.
    if (step_ > 0 && is_evaluated_after(step_) && evaluated_step_ < step_ &&
        step_ < config_.train.steps) {
      Result<int> done = evaluate_on_time();
      if (!done) return done.failure();
      status = *done;
    }
    while (step_ < config_.train.steps && status == 0 && !is_out_of_patience()) {
      Result<int> done = one_step();
      if (!done) return done.failure();
      status = *done;
    }
    end_line();
    std::optional<double> validation;
    if (status == 0) {
      const bool is_known = evaluated_step_ == step_ && last_validation_;
      validation = is_known ? last_validation_ : evaluate();
      if (validation && !is_known)
        if (Result<void> written = logged(events_.evaluation(step_, *validation), true); !written)
          return written.failure();
      if (validation && !std::isfinite(*validation))
        status = not_finite("validation loss", *validation, step_);
      else if (validation && !is_known && is_evaluated_after(step_))
        note_validation(*validation);
      else if (validation && !is_known)
        note_best(*validation);
    }
    if (status == kStatusNotFinite) {
      if (Result<void> written = write_summary("not finite"); !written) return written.failure();
      return status;
    }
    if (step_ > saved_step_ || saved_.empty() || (best_ && best_->step != named_best_))
      if (Result<void> saved = save(); !saved) return saved.failure();
    if ((stops() & kLogLost) != 0) return log_lost();
    if (status == 0) {
      if (Result<void> loaded = take_best(); !loaded) return loaded.failure();
      test_loss_ = evaluate(true);
      Result<int> finished = finish(validation);
      if (!finished || *finished != kStatusInterrupted) return finished;
      status = *finished;
    }
    say("interrupted after step {}: saved to {}; --resume goes on from there\n", step_, saved_);
    if (Result<void> written = write_summary("interrupted"); !written) return written.failure();
    return status;
  }

  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (options_.text) fmt::print(options_.text, format, std::forward<Args>(args)...);
    if (options_.text) std::fflush(options_.text);
  }

  Result<void> start() {
    if (options_.resume && !file_exists(config_.train.out))
      return fail("{}: no checkpoint to resume from", config_.train.out);
    if (positions_.is_first()) {
      if (Result<void> made = ensure_directory(config_.train.out); !made) return made;
      Result<HeldDirectory> held = HeldDirectory::hold(config_.train.out);
      if (!held) return fail("train.out: {}", held.error());
      held_.emplace(std::move(*held));
    }
    if (Result<void> shared = check_shared_folder(); !shared) return shared;
    if (const std::string text = data_->describe(); !text.empty()) say("{}\n", text);
    if (const Disk* disk = used_disk())
      say("disk: a file in {}, moved by {}{}\n", disk->folder(), disk_engine_name(disk->engine()),
          disk->direct() ? "" : " through the page cache");
    Result<std::optional<AtomicFile>> trace = open_trace(options_.trace_path);
    if (!trace) return trace.failure();
    if (*trace) trace_.emplace(std::move(**trace));
    if (options_.resume) return load();
    if (Result<void> made = make_state(); !made) return made;
    positions_.drop_arenas();
    if (Result<void> loaded = load_frozen(); !loaded) return loaded;
    // Once nothing stands in the way of a run, on any process.
    const Result<void> all =
        work_together(positions_, "the start of the run", []() -> Result<void> { return {}; });
    if (!all || !positions_.is_first()) return all;
    Result<std::string> moved = set_aside_checkpoints(config_.train.out);
    if (!moved) return moved.failure();
    if (!moved->empty()) say("checkpoints of an earlier run are now in {}\n", *moved);
    return {};
  }

  // A folder that the processes do not share is found before there is anything to save.
  Result<void> check_shared_folder() {
    if (positions_.n_processes() == 1) return {};
    const char* const label = "the folder of the run";
    const Result<std::string> mark =
        text_of_first(positions_, label, [&]() -> Result<std::string> {
          std::string path = fmt::format("{}/.shared-{}-{}", config_.train.out, ::getpid(),
                                         std::chrono::steady_clock::now().time_since_epoch().count());
          if (!std::ofstream(path).put('\n').flush()) return fail("{}: cannot be written", path);
          return path;
        });
    if (!mark) return mark.failure();
    const Result<void> seen = work_together(positions_, label, [&]() -> Result<void> {
      if (file_exists(*mark)) return {};
      return fail("train.out: expected one folder for all processes, got another {} than that of "
                  "process 0; name a folder that all machines see",
                  config_.train.out);
    });
    if (positions_.is_first()) ::unlink(mark->c_str());
    return seen;
  }

  // The state that a run begins with.
  Result<void> make_state() {
    if (!job_.model().reads_parameters()) {
      const uint64_t seed = static_cast<uint64_t>(config_.train.seed);
      const uint32_t words[2] = {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
      PositionBuffers keys(positions_.size());
      for (size_t p = 0; p < positions_.size(); ++p) {
        keys[p].push_back(positions_.device(p).allocate(8));
        keys[p][0]->write(0, std::as_bytes(std::span(words)));
      }
      state_ = positions_.run(plan_.programs.init, keys);
      return {};
    }
    if (Result<void> opened = open_weights(); !opened) return opened;
    const auto read = [&](size_t i, const TensorSlice& slice, DeviceBuffer& buffer) {
      return weights_->read_parameter(i, slice, buffer);
    };
    Result<PositionBuffers> parameters =
        read_parts(std::span(job_.state()).first(job_.n_model_leaves()),
                   step_inputs().first(job_.n_model_leaves()), positions_, read);
    if (!parameters) return parameters.failure();
    state_ = std::move(*parameters);
    PositionBuffers rest = positions_.run(plan_.programs.init, state_);
    for (size_t p = 0; p < state_.size(); ++p)
      for (DeviceBufferPtr& buffer : rest[p]) state_[p].push_back(std::move(buffer));
    return {};
  }

  // A position's part of an array, on its device.
  DeviceBufferPtr upload_part(std::span<const std::byte> whole, const ArrayType& type,
                              const AxisSharding& sharding, size_t p) {
    const auto upload = [&](std::span<const std::byte> bytes) {
      DeviceBufferPtr buffer = positions_.device(p).allocate(static_cast<int64_t>(bytes.size()));
      buffer->write(0, bytes);
      return buffer;
    };
    if (sharding.is_whole()) return upload(whole);
    const Dims& dims = type.shape.dims();
    const TensorSlice slice = slice_at(dims, sharding, job_.mesh(), positions_.position(p));
    const int64_t elem_bytes = dtype_bytes(type.dtype);
    std::vector<std::byte> part(static_cast<size_t>(slice.elems() * elem_bytes));
    const auto read = [&](int64_t offset, std::span<std::byte> out) -> Result<void> {
      std::memcpy(out.data(), whole.data() + offset, out.size());
      return {};
    };
    const Result<void> done = read_common(read, whole_slice(dims), 0, slice, elem_bytes, part);
    STOW_CHECK(done, "{}", done.error());
    return upload(part);
  }

  Result<void> open_weights() {
    if (weights_) return {};
    Result<std::unique_ptr<ModelWeights>> weights = job_.model().open_weights();
    if (!weights) return weights.failure();
    weights_ = std::move(*weights);
    return {};
  }

  std::span<const ArrayType> step_inputs() const { return plan_.programs.step->input_types(); }

  // Behind the state among a step's arguments. The last that is read of the model's files.
  Result<void> load_frozen() {
    const size_t n = job_.frozen().size();
    if (n > 0) {
      if (Result<void> opened = open_weights(); !opened) return opened;
      const auto read = [&](size_t i, const TensorSlice& slice, DeviceBuffer& buffer) {
        return weights_->read_frozen(i, slice, buffer);
      };
      Result<PositionBuffers> frozen = read_parts(
          job_.frozen(), step_inputs().subspan(job_.state().size(), n), positions_, read);
      if (!frozen) return frozen.failure();
      frozen_ = std::move(*frozen);
      Result<std::string> digest = text_of_first(positions_, "digest of the model",
                                                 [&] { return weights_->digest(); });
      if (!digest) return digest.failure();
      frozen_digest_ = std::move(*digest);
    }
    weights_ = nullptr;
    return {};
  }

  // The device's disk, where the plan has anything there.
  const Disk* used_disk() {
    return plan_.peak_bytes[static_cast<size_t>(MemoryKind::kDisk)] > 0 ? &device_->disk() : nullptr;
  }
  Json disk_json() {
    const Disk* disk = used_disk();
    if (!disk) return Json();
    return Json::object({{"folder", disk->folder()},
                         {"engine", disk_engine_name(disk->engine())},
                         {"direct", disk->direct()}});
  }

  // The file may have moved, but not changed.
  ConfigText what_must_agree() const {
    ConfigText text = config_to_resume(config_);
    text.emplace_back("data.digest", data_digest_);
    for (auto& pair : job_.model().identity()) text.push_back(std::move(pair));
    if (!job_.frozen().empty()) text.emplace_back("model.digest", frozen_digest_);
    return text;
  }

  CheckpointNeeds needs() const {
    CheckpointNeeds needs;
    for (const StateLeaf& leaf : job_.state())
      needs.tensors.push_back({leaf.name, leaf.type.dtype, leaf.type.shape.dims()});
    needs.config = what_must_agree();
    needs.defaults = config_to_resume(TrainConfig());
    if (config_.optimizer.total_steps == config_.train.steps)  // who wants more steps meets this
      needs.remedies = {{"optimizer.total_steps",
                         ", its train.steps; --set optimizer.total_steps={} keeps the schedule"}};
    return needs;
  }

  Result<void> load() {
    Result<std::optional<CheckpointName>> latest =
        latest_checkpoint_of_all(config_.train.out, positions_);
    if (!latest) return latest.failure();
    if (!*latest) return fail("{}: no checkpoint to resume from", config_.train.out);
    saved_ = (*latest)->path;
    step_ = saved_step_ = (*latest)->step;
    if (Result<void> loaded = load_frozen(); !loaded) return loaded;
    Result<Checkpoint> checkpoint = open_checkpoint((*latest)->path, needs(), positions_);
    if (!checkpoint) return checkpoint.failure();
    Result<PositionBuffers> state =
        read_state(*checkpoint, job_.state(), step_inputs(), positions_);
    if (!state) return state.failure();
    state_ = std::move(*state);
    if (const Json* best = checkpoint->meta().extra.find("best_validation_loss");
        best && best->as_double())
      best_validation_ = *best->as_double();
    if (const Json* since = checkpoint->meta().extra.find("evaluations_since_best");
        since && since->as_int())
      since_best_ = *since->as_int();
    if (const Json* at = checkpoint->meta().extra.find("evaluated_step"); at && at->as_int())
      evaluated_step_ = *at->as_int();
    if (Result<void> found = find_best(checkpoint->meta().extra); !found) return found;
    say("resumed from {} at step {}\n", saved_, step_);
    if (step_ >= config_.train.steps)
      say("no step is left to do: train.steps is {}{}\n", config_.train.steps,
          options_.trace_path.empty() ? "" : "; nor is there one to trace");
    return {};
  }

  Result<void> save() {
    CheckpointMeta meta;
    meta.step = meta.data_position = step_;
    meta.seed = static_cast<uint64_t>(config_.train.seed);
    meta.config = what_must_agree();
    meta.extra = Json::object({{"model", job_.model().record()}});
    if (std::isfinite(best_validation_)) {
      meta.extra.set("best_validation_loss", best_validation_);
      meta.extra.set("evaluations_since_best", since_best_);
      meta.extra.set("evaluated_step", evaluated_step_);
    }
    Retention keep = kKeptCheckpoints;
    if (best_) {
      meta.extra.set("best_step", best_->step);
      meta.extra.set("best_step_loss", best_->loss);
      keep.pinned_step = best_->step;
    }
    Result<std::string> path =
        save_state(config_.train.out, meta, job_.state(), state_, positions_, keep);
    if (!path) {
      return fail("{}; the run stops at step {}, the last checkpoint is {}", path.error(), step_,
                  last_checkpoint());
    }
    saved_ = *path;
    saved_step_ = step_;
    if (best_) named_best_ = best_->step;
    return {};
  }

  // Appends each position's part of these arrays to its arguments.
  void upload(const HostBatch& batch, const NamedArrays& types,
              std::span<const AxisSharding> shardings, PositionBuffers& arguments) {
    for (size_t i = 0; i < batch.arrays.size(); ++i)
      for (size_t p = 0; p < positions_.size(); ++p)
        arguments[p].push_back(
            upload_part(batch.arrays[i], types.arrays[i].type(), shardings[i], p));
  }

  // Why any process must stop, as bits. All ask at the same places.
  static constexpr int64_t kAskedToStop = 1, kLogLost = 2;
  int64_t stops() {
    const int64_t own = (interrupted ? kAskedToStop : 0) | (log_failure_ ? kLogLost : 0);
    int64_t all = 0;
    for (const auto& list : positions_.gather_over_processes(std::span(&own, 1), "whether to stop"))
      all |= list[0];
    return all;
  }
  bool is_interrupted() { return (stops() & kAskedToStop) != 0; }

  Result<int> one_step() {
    const double started_s = now_s();
    float loss, norm, lr;
    int64_t tokens;
    {
      const HostBatch batch =
          data_->train_batch(static_cast<uint64_t>(config_.train.seed), step_);
      tokens = batch.tokens > 0 ? batch.tokens
                                : config_.data.batch * config_.data.seq * config_.data.accumulate;
      if (batch.shape != shape_) positions_.drop_arenas();
      shape_ = batch.shape;
      shapes_run_.insert(shape_);
      PositionBuffers arguments = std::move(state_);
      state_.clear();
      append_frozen(arguments);
      upload(batch, step_batch(config_, job_.model(), shape_), job_.batch_shardings(shape_),
             arguments);
      PositionBuffers results = positions_.run(plan_.programs.step_of(shape_), arguments,
                                               is_traced() ? &recorder_ : nullptr);
      const size_t n = job_.state().size();
      loss = read_float(results[0][n]);
      norm = read_float(results[0][n + 1]);
      lr = read_float(results[0][n + 2]);
      for (std::vector<DeviceBufferPtr>& of_position : results) of_position.resize(n);
      state_ = std::move(results);
    }
    const double seconds = now_s() - started_s;
    if (is_traced())
      if (Result<void> traced = save_trace(); !traced) return traced.failure();
    ++step_;
    step_s_.push_back(seconds);
    const double tokens_per_s = static_cast<double>(tokens) / seconds;
    if (first_loss_ < 0) first_loss_ = loss;
    last_loss_ = loss;
    if (options_.json) {
      const Result<void> written = options_.json->write(
          Json::object({{"step", step_},
                        {"loss", static_cast<double>(loss)},
                        {"loss_hex", hex_float(loss)},
                        {"grad_norm", static_cast<double>(norm)},
                        {"lr", static_cast<double>(lr)},
                        {"tokens_per_s", tokens_per_s}}));
      if (Result<void> kept = logged(written, std::isfinite(loss) && std::isfinite(norm)); !kept)
        return kept.failure();
    }
    if (Result<void> kept = logged(events_.step(step_, loss, norm, lr, tokens_per_s),
                                   std::isfinite(loss) && std::isfinite(norm));
        !kept)
      return kept.failure();
    progress(loss, norm, lr, tokens_per_s);
    if (!std::isfinite(loss)) return not_finite("loss", loss, step_ - 1);
    if (!std::isfinite(norm)) return not_finite("gradient's norm", norm, step_ - 1);
    if (is_evaluated_after(step_) && step_ < config_.train.steps) {
      Result<int> done = evaluate_on_time();
      if (!done || *done != 0) return done;
    }
    const int64_t save_every = config_.train.checkpoint_every;
    if (save_every > 0 && step_ % save_every == 0 && step_ < config_.train.steps &&
        step_ > saved_step_)  // not one that an evaluation saved
      if (Result<void> saved = save(); !saved) return saved.failure();
    const int64_t stop = stops();
    if ((stop & kLogLost) != 0) return log_lost();
    return stop != 0 ? kStatusInterrupted : 0;
  }

  bool is_evaluated_after(int64_t step) const {
    return config_.eval.every > 0 && step % config_.eval.every == 0;
  }
  // An evaluation between steps, said and written; the status that it ends the run with, or 0.
  Result<int> evaluate_on_time() {
    const std::optional<double> validation = evaluate();
    end_line();
    if (!validation) return 0;
    if (Result<void> written = logged(events_.evaluation(step_, *validation), true); !written)
      return written.failure();
    if (!std::isfinite(*validation)) return not_finite("validation loss", *validation, step_);
    say("step {}: validation loss {:.4f}\n", step_, *validation);
    if (options_.json)
      if (Result<void> written = logged(
              options_.json->write(
                  Json::object({{"step", step_}, {"validation_loss", *validation}})),
              true);
          !written)
        return written.failure();
    if (note_validation(*validation))
      if (Result<void> saved = save(); !saved) return saved.failure();
    return 0;
  }

  // Only the first process writes a log. Where there are others, they hear of a failure in stops().
  Result<void> logged(const Result<void>& written, bool is_finite) {
    if (written) return {};
    if (positions_.n_processes() == 1) return not_written(written.failure(), is_finite);
    if (!log_failure_) log_failure_ = written.failure();
    return {};
  }
  Failure log_lost() {
    return not_written(log_failure_ ? *log_failure_ : Failure{"process 0 could not write its log"}, true);
  }
  // The run stops, as a line of its log could not be written; it saves a state that is of use.
  Failure not_written(const Failure& why, bool is_finite) {
    if (is_finite && step_ > saved_step_)
      if (Result<void> saved = save(); !saved) return fail("{}; {}", why.message, saved.error());
    return stopped_by(why.message);
  }

  // Says so, and what there is to go on from. `weights_step`: after which the weights were that
  // gave it.
  int not_finite(std::string_view what, double value, int64_t weights_step) {
    end_line();
    if (!positions_.is_first()) return kStatusNotFinite;
    fmt::print(stderr, "stowage: error: step {}: the {} is {}; the last checkpoint is {}{}\n",
               step_, what, value, last_checkpoint(),
               !saved_.empty() && saved_step_ == weights_step
                   ? ", which has the weights that gave it: --resume needs one before it"
                   : "");
    return kStatusNotFinite;
  }

  // From the third step on, where memory is touched and what follows is like it; or the last of a
  // shorter run.
  int64_t first_traced() const { return std::min(first_step_ + 2, config_.train.steps - 1); }
  bool is_traced() const {
    return !options_.trace_path.empty() && step_ >= first_traced() &&
           step_ < first_traced() + kTimedSteps;
  }
  Result<void> save_trace() {
    const Schedule& schedule = plan_.programs.step_of(shape_)->schedule();
    const std::vector<RunEvent> events = recorder_.take();
    replay(schedule, events);
    if (step_ > first_traced()) return {};
    if (Result<void> written =
            write_trace(*trace_, trace_run(schedule, events, fmt::format("step {}", step_ + 1)));
        !written)
      return written;
    end_line();
    const Simulation use = summarize_run(schedule, events);
    say("step {} is in {}: {}, of which compute waited {} for transfers\n{}{}", step_ + 1,
        options_.trace_path, format_seconds(use.step_s), format_seconds(use.exposed_s),
        waits_table(schedule, events, kShownWaits), streams_table(use));
    return {};
  }

  // What order, overlap and waiting make of the time that each kernel of this step took, beside what
  // the step took; as a share of that.
  void replay(const Schedule& schedule, std::span<const RunEvent> events) {
    KernelTimes times;
    times.add(events);
    SimulateOptions options;
    options.measured_s = [&](const Kernel& k, int64_t run) {
      return std::max(0.0, times.seconds(k, run));
    };
    // No figure of the device counts: everything was measured.
    const double simulated_s = simulate(schedule, {}, options).step_s;
    const double measured_s = summarize_run(schedule, events).step_s;
    replay_errors_.push_back(std::abs(simulated_s / measured_s - 1));
  }

  // Whether the weights are the best so far and their checkpoint is asked for.
  bool note_validation(double loss) {
    since_best_ = loss < best_validation_ ? 0 : since_best_ + 1;
    best_validation_ = std::min(best_validation_, loss);
    last_validation_ = loss;
    evaluated_step_ = step_;
    return note_best(loss);
  }
  bool note_best(double loss) {
    if (!config_.eval.keep_best || (best_ && loss >= best_->loss)) return false;
    best_ = Best{step_, loss};
    return true;
  }
  // The best checkpoint that another one names, if it is still there.
  Result<void> find_best(const Json& extra) {
    const Json* step = extra.find("best_step");
    const Json* loss = extra.find("best_step_loss");
    if (!config_.eval.keep_best || !step || !step->as_int() || !loss || !loss->as_double()) return {};
    if (*step->as_int() < 0 || *step->as_int() > step_)
      return fail("{}: is damaged: its best step is {}", saved_, *step->as_int());
    const std::string path = checkpoint_path(config_.train.out, *step->as_int());
    const Result<std::string> is_there = text_of_first(
        positions_, "the best checkpoint", [&]() -> Result<std::string> {
          return std::string(file_exists(path) ? "there" : "");
        });
    if (!is_there) return is_there.failure();
    if (is_there->empty())
      say("{}, the best checkpoint, is not there any more: the next evaluation counts as the best\n",
          path);
    else
      best_ = Best{named_best_ = *step->as_int(), *loss->as_double()};
    return {};
  }
  // The weights that the run ends with, for the test and the sample: the best, once the last are saved.
  Result<void> take_best() {
    if (!best_ || best_->step == step_) return {};
    positions_.drop_arenas();
    state_.clear();
    const std::string path = checkpoint_path(config_.train.out, best_->step);
    Result<Checkpoint> checkpoint = open_checkpoint(path, needs(), positions_);
    if (!checkpoint) return checkpoint.failure();
    Result<PositionBuffers> state =
        read_state(*checkpoint, job_.state(), step_inputs(), positions_);
    if (!state) return state.failure();
    state_ = std::move(*state);
    return {};
  }
  bool is_out_of_patience() const {
    return config_.eval.patience > 0 && since_best_ >= config_.eval.patience;
  }

  // Nothing where it was interrupted, or nothing is held out.
  std::optional<double> evaluate(bool of_test = false) {
    const int64_t batches = of_test ? data_->n_test_batches() : data_->n_validation_batches();
    if (batches == 0) return {};
    positions_.drop_arenas();
    double total = 0, weight = 0;
    for (int64_t i = 0; i < batches; ++i) {
      if (is_interrupted()) return {};
      PositionBuffers arguments = model_arguments();
      const HostBatch batch = of_test ? data_->test_batch(i) : data_->validation_batch(i);
      upload(batch, job_.model().eval_batch(), job_.eval_shardings(), arguments);
      total += batch.weight * read_float(positions_.run(plan_.programs.eval, arguments)[0][0]);
      weight += batch.weight;
    }
    positions_.drop_arenas();
    return total / weight;
  }

  // What evaluation and samples take before their inputs.
  PositionBuffers model_arguments() const {
    const auto [first, count] = job_.evaluated_leaves();
    PositionBuffers arguments;
    for (const std::vector<DeviceBufferPtr>& state : state_) {
      const auto begin = state.begin() + static_cast<std::ptrdiff_t>(first);
      arguments.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    append_frozen(arguments);
    return arguments;
  }
  void append_frozen(PositionBuffers& arguments) const {
    for (size_t p = 0; p < frozen_.size(); ++p)
      arguments[p].insert(arguments[p].end(), frozen_[p].begin(), frozen_[p].end());
  }

  // What the model makes, for people.
  std::string sample() {
    if (!plan_.programs.sample) return {};
    positions_.drop_arenas();
    const NamedArrays types = job_.model().sample_inputs();
    std::vector<AxisSharding> whole;
    for (const Array& a : types.arrays) whole.push_back(whole_sharding(a.rank()));
    const auto run = [&](const HostBatch& inputs) -> std::optional<std::vector<float>> {
      if (is_interrupted()) return std::nullopt;
      PositionBuffers arguments = model_arguments();
      upload(inputs, types, whole, arguments);
      const DeviceBufferPtr made = positions_.run(plan_.programs.sample, arguments)[0][0];
      std::vector<float> logits(static_cast<size_t>(made->bytes()) / sizeof(float));
      made->read(0, std::as_writable_bytes(std::span(logits)));
      return logits;
    };
    std::string text =
        data_->sample(run, static_cast<uint64_t>(config_.train.seed), config_.train.sample);
    positions_.drop_arenas();
    return text;
  }

  void progress(float loss, float norm, float lr, double tokens_per_s) {
    if (!options_.text) return;
    const bool terminal = isatty(fileno(options_.text));
    const double now = now_s();
    const bool last = step_ == config_.train.steps;
    if (!last && step_ > first_step_ + 1 && now - shown_s_ < (terminal ? 0.1 : 5.0)) return;
    shown_s_ = now;
    const double per_step = (now - begin_s_) / static_cast<double>(step_ - first_step_);
    const std::string line = fmt::format(
        "step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s  peak {} of {}  {} left",
        step_, config_.train.steps, loss, norm, lr, tokens_per_s,
        format_bytes(device_->high_water_bytes(MemoryKind::kDevice)), format_bytes(budget_bytes_),
        format_duration(per_step * static_cast<double>(config_.train.steps - step_)));
    if (terminal) {
      fmt::print(options_.text, "\r\x1b[K{}", line);
      open_line_ = true;
    } else {
      fmt::print(options_.text, "{}\n", line);
    }
    std::fflush(options_.text);
  }
  void end_line() {
    if (open_line_) fmt::print(options_.text, "\n");
    open_line_ = false;
  }

  // Whether any step of that phase's shape of batch was run.
  bool has_run_step(const std::string& phase) const {
    return std::any_of(shapes_run_.begin(), shapes_run_.end(),
                       [&](size_t shape) { return step_phase(shape) == phase; });
  }

  // Peak and lower bound of the programs that this run is of: one that goes on initialises nothing,
  // and may have no step left.
  std::pair<BytesByKind, BytesByKind> bounds() const {
    // State and frozen weights are there in any run.
    BytesByKind held{};
    for (size_t i = 0; i < job_.state().size() + job_.frozen().size(); ++i) {
      const ArrayType& type = step_inputs()[i];
      held[static_cast<size_t>(type.kind)] += type.bytes();
    }
    std::pair result(held, held);
    for (const JobPlan::Phase& phase : plan_.phases) {
      if (phase.name == "init" && options_.resume) continue;
      if (phase.name.starts_with("step") && !has_run_step(phase.name)) continue;
      for (size_t kind = 0; kind < result.first.size(); ++kind) {
        result.first[kind] = std::max(result.first[kind], phase.peak_bytes[kind]);
        result.second[kind] = std::max(result.second[kind], phase.lower_bound_bytes[kind]);
      }
    }
    return result;
  }

  Result<int> finish(std::optional<double> validation) {
    const std::string text = validation ? sample() : std::string();
    if (is_interrupted()) return kStatusInterrupted;
    if (is_out_of_patience())
      say("stopped after step {}: {} evaluations without a lower loss than {:.4f} (eval.patience)\n",
          step_, since_best_, best_validation_);
    if (validation) say("validation loss {:.4f} {}\n", *validation, job_.model().loss_unit());
    if (best_)
      say("best: validation loss {:.4f} after step {}, in {}{}\n", best_->loss, best_->step,
          checkpoint_path(config_.train.out, best_->step),
          best_->step == step_ ? "" : "; what follows is of its weights");
    if (test_loss_) say("test loss {:.4f} {}\n", *test_loss_, job_.model().loss_unit());
    if (!text.empty()) say("sample:\n{}\n", printable(text));
    int64_t measured = 0;
    for (const BytesByKind& bytes : measured_everywhere()) measured = std::max(measured, bytes[0]);
    say("peak: predicted {} bytes, measured {} bytes ({}) of {}\n", bounds().first[0], measured,
        format_bytes(measured), format_bytes(budget_bytes_));
    if (const int64_t window = positions_.window_bytes(); window > 0)
      say("window: planned {} bytes a device, mapped {} bytes for all devices that share it\n", config_.runtime.window_bytes,
          window);
    const double step_s = median(step_s_);
    const bool has_steps = !step_s_.empty();
    if (has_steps)
      say("step: {}measured {}, the median of {}\n",
          options_.predicted_step_s && shapes_run_ == std::set<size_t>{0}
              ? fmt::format("predicted {}, ", format_seconds(*options_.predicted_step_s))
              : std::string(),
          format_seconds(step_s), step_s_.size());
    if (!replay_errors_.empty())
      say("order and overlap, simulated with each step's own kernel times, are {:.1f} % off, the "
          "median of {} steps\n",
          100 * median(replay_errors_), replay_errors_.size());
    say("saved to {}\n", saved_);
    if (Result<void> written = write_summary("done", validation); !written)
      return written.failure();
    return 0;
  }

  static BytesByKind measured_bytes(const Device& device) {
    return {device.high_water_bytes(MemoryKind::kDevice),
            device.high_water_bytes(MemoryKind::kPinnedHost),
            device.high_water_bytes(MemoryKind::kDisk)};
  }
  // Of every device of all processes, in the order of ranks. All processes call it.
  std::vector<BytesByKind> measured_everywhere() {
    std::vector<int64_t> here;
    for (size_t p = 0; p < positions_.size(); ++p)
      for (const int64_t bytes : measured_bytes(positions_.device(p))) here.push_back(bytes);
    std::vector<BytesByKind> all;
    for (const std::vector<int64_t>& there :
         positions_.gather_over_processes(here, "the devices' peaks"))
      for (size_t i = 0; i < there.size(); i += kNumMemoryKinds) {
        BytesByKind& bytes = all.emplace_back();
        std::copy_n(there.begin() + static_cast<std::ptrdiff_t>(i), bytes.size(), bytes.begin());
      }
    return all;
  }

  // How the run ended; of one that did not get to its end, what was predicted is of all of it.
  Result<void> write_summary(const char* status, std::optional<double> validation = {}) {
    const std::vector<BytesByKind> measured = measured_everywhere();
    if (!options_.json) return {};
    const auto [predicted, lower_bound] = bounds();
    Json devices = Json::array();
    BytesByKind most{};
    for (size_t rank = 0; rank < measured.size(); ++rank) {
      for (size_t kind = 0; kind < most.size(); ++kind)
        most[kind] = std::max(most[kind], measured[rank][kind]);
      devices.push_back(Json::object({{"rank", static_cast<int64_t>(rank)},
                                      {"device", device_->name()},
                                      {"predicted_peak_bytes", bytes_json(predicted)},
                                      {"measured_peak_bytes", bytes_json(measured[rank])}}));
    }
    const bool has_steps = !step_s_.empty();
    return options_.json->write(
        Json::object({{"summary", true},
                      {"status", status},
                      {"steps", step_},
                      {"policy", policy_name(plan_.placement.policy)},
                      {"placement", to_string(plan_.placement)},
                      {"first_loss", has_steps ? Json(first_loss_) : Json()},
                      {"last_loss", has_steps ? Json(last_loss_) : Json()},
                      {"validation_loss", validation ? Json(*validation) : Json()},
                      {"best_validation_loss", best_ ? Json(best_->loss) : Json()},
                      {"best_step", best_ ? Json(best_->step) : Json()},
                      {"best_checkpoint",
                       best_ ? Json(checkpoint_path(config_.train.out, best_->step)) : Json()},
                      {"test_loss", test_loss_ ? Json(*test_loss_) : Json()},
                      {"predicted_peak_bytes", bytes_json(predicted)},
                      {"measured_peak_bytes", bytes_json(most)},
                      {"devices", devices},
                      {"window_bytes", positions_.window_bytes()},
                      {"planned_window_bytes_of_device", config_.runtime.window_bytes},
                      {"reduce", config_.runtime.reduce},
                      {"lower_bound_bytes", bytes_json(lower_bound)},
                      {"data_path", config_.data.path},
                      {"disk", disk_json()},
                      {"compile_s", plan_.plan_s},
                      {"predicted_step_s",
                       options_.predicted_step_s ? Json(*options_.predicted_step_s) : Json()},
                      {"measured_step_s", has_steps ? Json(median(step_s_)) : Json()},
                      {"checkpoint", saved_}}));
  }

  static std::string printable(const std::string& text) {
    std::string out;
    for (char c : text)
      out += c == '\n' ? std::string("\n  ") : (c >= 32 && c < 127) ? std::string(1, c) : "?";
    return "  " + out;
  }

  const Job& job_;
  const TrainConfig& config_;
  const JobPlan& plan_;
  int64_t budget_bytes_;
  const RunOptions& options_;
  std::unique_ptr<TrainData> data_;
  std::string data_digest_;
  Positions& positions_;
  Device* device_;  // The first here.
  PositionBuffers state_, frozen_;
  std::unique_ptr<ModelWeights> weights_;  // While they are read.
  std::string frozen_digest_;
  size_t shape_ = 0;  // Of the last batch.
  std::set<size_t> shapes_run_;
  double best_validation_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;  // Evaluations.
  int64_t evaluated_step_ = -1;  // The last whose evaluation counted.
  std::optional<double> last_validation_, test_loss_;
  struct Best {
    int64_t step = 0;
    double loss = 0;
  };
  std::optional<Best> best_;  // The evaluation whose checkpoint stays (eval.keep_best).
  int64_t named_best_ = -1;   // The best step that the last checkpoint names.
  int64_t step_ = 0, first_step_ = 0, saved_step_ = -1;
  RunRecorder recorder_;
  std::optional<HeldDirectory> held_;  // train.out
  std::optional<AtomicFile> trace_;
  std::optional<Failure> log_failure_;  // Of the first process, where there are several.
  ProgressEvents events_;
  std::vector<double> replay_errors_;
  std::vector<double> step_s_;
  double first_loss_ = -1, last_loss_ = -1, begin_s_ = 0, shown_s_ = 0;
  std::string saved_;
  bool open_line_ = false;
};

}  // namespace

Json bytes_json(const BytesByKind& bytes) {
  Json object = Json::object();
  for (int kind = 0; kind < kNumMemoryKinds; ++kind)
    object.set(memory_kind_name(static_cast<MemoryKind>(kind)), bytes[static_cast<size_t>(kind)]);
  return object;
}

Result<Positions> make_positions(const Job& job, const Budgets& budgets, comm::World* world) {
  const TrainConfig& config = job.config();
  Device::Capacities capacities;
  const Budgets available = budgets_of_programs(config, budgets);
  for (size_t kind = 0; kind < capacities.size(); ++kind)
    capacities[kind] = available[kind].value_or(Device::unlimited_bytes());
  DiskOptions disk;
  disk.folder = config.runtime.disk_folder;
  const auto make_device = [&] {
    return config.is_virtual()
               ? Device::virtual_device(capacities, job.threads(), disk)
               : Device::cpu_with_capacity(capacities[0], job.threads(), capacities[2], disk);
  };
  if (job.mesh().rank() == 0) return Positions(make_device());
  const int64_t n_processes = world ? world->n_processes() : 1;
  const int64_t n_here = world ? world->devices() : job.mesh().size();
  if (n_here * n_processes != job.mesh().size())
    return fail("{} has {} devices, and there are {} processes of {}", to_string(job.mesh()),
                job.mesh().size(), n_processes, n_here);
  std::vector<DevicePtr> devices;
  for (int64_t i = 0; i < n_here; ++i) devices.push_back(make_device());
  return Positions(job.mesh(), std::move(devices), world, config.runtime.timeout);
}

Result<int> run_training(const Job& job, const Choice& choice, const Budgets& budgets,
                         const RunOptions& options, std::unique_ptr<TrainData> data) {
  if (!data) {
    Result<std::unique_ptr<TrainData>> opened = job.model().open_data();
    if (!opened) return opened.failure();
    data = std::move(*opened);
  }
#ifdef __GLIBC__
  // What planning took, many times what a small budget is, goes back to the system.
  ::malloc_trim(0);
#endif
  if (options.positions)
    return Run(job, *choice.plan, budgets, options, *options.positions, std::move(data)).run();
  Result<Positions> made = make_positions(job, budgets);
  if (!made) return made.failure();
  return Run(job, *choice.plan, budgets, options, *made, std::move(data)).run();
}

}  // namespace stow
