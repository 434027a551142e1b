#include "stowage/train/trainer.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <chrono>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "stowage/io/checkpoint_file.h"
#include "stowage/io/files.h"
#include "stowage/train/interrupts.h"
#include "stowage/train/mesh_checkpoint.h"
#include "stowage/train/progress_events.h"
#include "stowage/train/run_report.h"
#include "stowage/train/run_state.h"
#include "stowage/train/step.h"

namespace stow {
namespace {

constexpr int64_t kKeptCheckpoints = 3;

float read_float(const DeviceBufferPtr& buffer) {
  float value;
  buffer->read(0, std::as_writable_bytes(std::span(&value, 1)));
  return std::isnan(value) ? std::abs(value) : value;  // a NaN of either sign is one
}

class Run {
 public:
  Run(const Job& job, const JobPlan& plan, const Budgets& budgets, const RunOptions& options,
      Positions& positions, std::unique_ptr<TrainData> data)
      : job_(job),
        config_(job.config()),
        plan_(plan),
        options_(options),
        data_(std::move(data)),
        positions_(positions),
        report_(job, plan, budgets, options, positions),
        state_(job, plan, positions, data_->digest()) {}

  Result<int> run() {
    try {
      return run_all();
    } catch (const DiskError& error) {
      report_.end_line();
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
    report_.begin(step_);
    int status = 0;
    // An evaluation that an interruption left out.
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
    report_.end_line();
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
    report_.say("interrupted after step {}: saved to {}; --resume goes on from there\n", step_,
                saved_);
    if (Result<void> written = write_summary("interrupted"); !written) return written.failure();
    return status;
  }

  Result<void> start() {
    if (options_.resume && !file_exists(config_.train.out))
      return fail("{}: expected a checkpoint to resume from, got none; leave --resume out to begin",
                  config_.train.out);
    if (positions_.is_first()) {
      if (Result<void> made = ensure_directory(config_.train.out); !made) return made;
      Result<DirectoryLock> held = DirectoryLock::lock(config_.train.out);
      if (!held) return fail("train.out: {}", held.error());
      held_.emplace(std::move(*held));
    }
    if (Result<void> shared = check_shared_folder(); !shared) return shared;
    if (const std::string text = data_->describe(); !text.empty()) report_.say("{}\n", text);
    report_.say_disk();
    if (Result<void> opened = report_.open_trace(); !opened) return opened;
    if (options_.resume) return load();
    if (Result<void> made = state_.make(); !made) return made;
    positions_.drop_arenas();
    if (Result<void> loaded = state_.load_frozen(); !loaded) return loaded;
    // Earlier checkpoints are moved only once every process can run.
    const Result<void> all = run_on_all_processes(positions_, "the start of the run",
                                                  []() -> Result<void> { return {}; });
    if (!all || !positions_.is_first()) return all;
    Result<std::string> moved = set_aside_checkpoints(config_.train.out);
    if (!moved) return moved.failure();
    if (!moved->empty()) report_.say("checkpoints of an earlier run are now in {}\n", *moved);
    return {};
  }

  // Detects a folder that the processes do not share before there is anything to save.
  Result<void> check_shared_folder() {
    if (positions_.n_processes() == 1) return {};
    const char* const label = "the folder of the run";
    const Result<std::string> mark =
        text_of_process_0(positions_, label, [&]() -> Result<std::string> {
          std::string path =
              fmt::format("{}/.shared-{}-{}", config_.train.out, ::getpid(),
                          std::chrono::steady_clock::now().time_since_epoch().count());
          if (!std::ofstream(path).put('\n').flush())
            return fail("{}: {}", path, std::strerror(errno));
          return path;
        });
    if (!mark) return mark.failure();
    const Result<void> seen = run_on_all_processes(positions_, label, [&]() -> Result<void> {
      if (file_exists(*mark)) return {};
      return fail("train.out: expected one folder for all processes, got another {} than that of "
                  "process 0; name a folder that all machines see",
                  config_.train.out);
    });
    if (positions_.is_first()) ::unlink(mark->c_str());
    return seen;
  }

  Result<void> load() {
    Result<std::optional<CheckpointName>> latest =
        latest_checkpoint_of_all(config_.train.out, positions_);
    if (!latest) return latest.failure();
    if (!*latest)
      return fail("{}: expected a checkpoint to resume from, got none; leave --resume out to begin",
                  config_.train.out);
    saved_ = (*latest)->path;
    step_ = saved_step_ = (*latest)->step;
    if (Result<void> loaded = state_.load_frozen(); !loaded) return loaded;
    Result<Checkpoint> checkpoint = state_.open((*latest)->path);
    if (!checkpoint) return checkpoint.failure();
    if (Result<void> read = state_.read(*checkpoint); !read) return read;
    if (const Json* best = checkpoint->meta().extra.find("best_validation_loss");
        best && best->as_double())
      best_validation_ = *best->as_double();
    if (const Json* since = checkpoint->meta().extra.find("evaluations_since_best");
        since && since->as_int())
      since_best_ = *since->as_int();
    if (const Json* at = checkpoint->meta().extra.find("evaluated_step"); at && at->as_int())
      evaluated_step_ = *at->as_int();
    if (Result<void> found = find_best(checkpoint->meta().extra); !found) return found;
    report_.say("resumed from {} at step {}\n", saved_, step_);
    if (step_ >= config_.train.steps)
      report_.say("no step is left to do: train.steps is {}{}\n", config_.train.steps,
                  options_.trace_path.empty() ? "" : "; nor is there one to trace");
    return {};
  }

  Result<void> save() {
    CheckpointMeta meta;
    meta.step = meta.data_position = step_;
    meta.seed = static_cast<uint64_t>(config_.train.seed);
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
    Result<std::string> path = state_.save(std::move(meta), keep);
    if (!path) {
      return fail("{}; the run stops at step {}, the last checkpoint is {}", path.error(), step_,
                  last_checkpoint());
    }
    saved_ = *path;
    saved_step_ = step_;
    if (best_) named_best_ = best_->step;
    return {};
  }

  // Reasons to stop, as bits, over all processes. All of them call stops() at the same places.
  static constexpr int64_t kAskedToStop = 1, kLogLost = 2;
  int64_t stops() {
    const int64_t own = (is_asked_to_stop() ? kAskedToStop : 0) | (log_failure_ ? kLogLost : 0);
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
      PositionBuffers arguments = state_.take_step_arguments();
      state_.upload(batch, step_batch(config_, job_.model(), shape_), job_.batch_shardings(shape_),
                    arguments);
      PositionBuffers results =
          positions_.run(plan_.programs.step_of(shape_), arguments, report_.observer(step_));
      const size_t n = job_.state().size();
      loss = read_float(results[0][n]);
      norm = read_float(results[0][n + 1]);
      lr = read_float(results[0][n + 2]);
      for (std::vector<DeviceBufferPtr>& of_position : results) of_position.resize(n);
      state_.set(std::move(results));
    }
    const double seconds = now_s() - started_s;
    if (Result<void> traced = report_.end_of_step(step_, shape_); !traced) return traced.failure();
    ++step_;
    const double tokens_per_s = static_cast<double>(tokens) / seconds;
    const StepFigures figures = {step_, loss, norm, lr, seconds, tokens_per_s, shape_};
    const bool is_finite = std::isfinite(loss) && std::isfinite(norm);
    if (Result<void> kept = logged(report_.step(figures), is_finite); !kept) return kept.failure();
    if (Result<void> kept = logged(events_.step(step_, loss, norm, lr, tokens_per_s), is_finite);
        !kept)
      return kept.failure();
    report_.progress(figures);
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
  // Evaluates between steps, and reports and logs the result. Returns the status with which it ends
  // the run, or 0.
  Result<int> evaluate_on_time() {
    const std::optional<double> validation = evaluate();
    report_.end_line();
    if (!validation) return 0;
    if (Result<void> written = logged(events_.evaluation(step_, *validation), true); !written)
      return written.failure();
    if (!std::isfinite(*validation)) return not_finite("validation loss", *validation, step_);
    report_.say("step {}: validation loss {:.4f}\n", step_, *validation);
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

  // Only the first process writes a log. Other processes learn of a failure in stops().
  Result<void> logged(const Result<void>& written, bool is_finite) {
    if (written) return {};
    if (positions_.n_processes() == 1) return not_written(written.failure(), is_finite);
    if (!log_failure_) log_failure_ = written.failure();
    return {};
  }
  Failure log_lost() {
    return not_written(log_failure_ ? *log_failure_ : Failure{"process 0 could not write its log"},
                       true);
  }
  // Stops the run because a line of its log could not be written. Saves the state if it is finite.
  Failure not_written(const Failure& why, bool is_finite) {
    if (is_finite && step_ > saved_step_)
      if (Result<void> saved = save(); !saved) return fail("{}; {}", why.message, saved.error());
    return stopped_by(why.message);
  }

  // Reports a number that is not finite, and the last checkpoint. `weights_step`: the step after
  // which the weights gave that number.
  int not_finite(std::string_view what, double value, int64_t weights_step) {
    report_.end_line();
    if (!positions_.is_first()) return kStatusNotFinite;
    fmt::print(stderr, "stowage: error: step {}: the {} is {}; the last checkpoint is {}{}\n",
               step_, what, value, last_checkpoint(),
               !saved_.empty() && saved_step_ == weights_step
                   ? ", which has the weights that gave it: --resume needs one before it"
                   : "");
    return kStatusNotFinite;
  }

  // Notes an evaluation between steps. Returns true if the weights are to be saved as the best.
  bool note_validation(double loss) {
    since_best_ = loss < best_validation_ ? 0 : since_best_ + 1;
    best_validation_ = std::min(best_validation_, loss);
    last_validation_ = loss;
    evaluated_step_ = step_;
    return note_best(loss);
  }
  bool note_best(double loss) {
    if (!config_.eval.keep_best || (best_ && loss >= best_->loss)) return false;
    best_ = BestEvaluation{step_, loss};
    return true;
  }
  // Finds the best checkpoint that another one names, if it still exists.
  Result<void> find_best(const Json& extra) {
    const Json* step = extra.find("best_step");
    const Json* loss = extra.find("best_step_loss");
    if (!config_.eval.keep_best || !step || !step->as_int() || !loss || !loss->as_double())
      return {};
    if (*step->as_int() < 0 || *step->as_int() > step_)
      return fail("{}: is damaged: its best step is {}; move it away to resume from an earlier one",
                  saved_, *step->as_int());
    const std::string path = checkpoint_path(config_.train.out, *step->as_int());
    const Result<std::string> is_there = text_of_process_0(
        positions_, "the best checkpoint", [&]() -> Result<std::string> {
          return std::string(file_exists(path) ? "there" : "");
        });
    if (!is_there) return is_there.failure();
    if (is_there->empty())
      report_.say(
          "{}, the best checkpoint, is not there any more: the next evaluation counts as the best\n",
          path);
    else
      best_ = BestEvaluation{named_best_ = *step->as_int(), *loss->as_double()};
    return {};
  }
  // Loads the weights for the test and the sample: the best ones. The last ones have been saved.
  Result<void> take_best() {
    if (!best_ || best_->step == step_) return {};
    positions_.drop_arenas();
    state_.clear();
    const std::string path = checkpoint_path(config_.train.out, best_->step);
    Result<Checkpoint> checkpoint = state_.open(path);
    if (!checkpoint) return checkpoint.failure();
    return state_.read(*checkpoint);
  }
  bool is_out_of_patience() const {
    return config_.eval.patience > 0 && since_best_ >= config_.eval.patience;
  }

  // Returns none if evaluation was interrupted or nothing is held out.
  std::optional<double> evaluate(bool of_test = false) {
    const int64_t batches = of_test ? data_->n_test_batches() : data_->n_validation_batches();
    if (batches == 0) return {};
    positions_.drop_arenas();
    double total = 0, weight = 0;
    for (int64_t i = 0; i < batches; ++i) {
      if (is_interrupted()) return {};
      PositionBuffers arguments = state_.model_arguments();
      const HostBatch batch = of_test ? data_->test_batch(i) : data_->validation_batch(i);
      state_.upload(batch, job_.model().eval_batch(), job_.eval_shardings(), arguments);
      total += batch.weight * read_float(positions_.run(plan_.programs.eval, arguments)[0][0]);
      weight += batch.weight;
    }
    positions_.drop_arenas();
    return total / weight;
  }

  // Returns a sample of the model for people.
  std::string sample() {
    if (!plan_.programs.sample) return {};
    positions_.drop_arenas();
    const NamedArrays types = job_.model().sample_inputs();
    std::vector<AxisSharding> whole;
    for (const Array& a : types.arrays) whole.push_back(whole_sharding(a.rank()));
    const auto run = [&](const HostBatch& inputs) -> std::optional<std::vector<float>> {
      if (is_interrupted()) return std::nullopt;
      PositionBuffers arguments = state_.model_arguments();
      state_.upload(inputs, types, whole, arguments);
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

  Result<int> finish(std::optional<double> validation) {
    const std::string text = validation ? sample() : std::string();
    if (is_interrupted()) return kStatusInterrupted;
    if (is_out_of_patience())
      report_.say(
          "stopped after step {}: {} evaluations without a lower loss than {:.4f} (eval.patience)\n",
          step_, since_best_, best_validation_);
    if (validation)
      report_.say("validation loss {:.4f} {}\n", *validation, job_.model().loss_unit());
    if (best_)
      report_.say("best: validation loss {:.4f} after step {}, in {}{}\n", best_->loss, best_->step,
                  checkpoint_path(config_.train.out, best_->step),
                  best_->step == step_ ? "" : "; what follows is of its weights");
    if (test_loss_) report_.say("test loss {:.4f} {}\n", *test_loss_, job_.model().loss_unit());
    if (!text.empty()) report_.say("sample:\n{}\n", printable(text));
    report_.say_figures();
    report_.say("saved to {}\n", saved_);
    if (Result<void> written = write_summary("done", validation); !written)
      return written.failure();
    return 0;
  }

  Result<void> write_summary(const char* status, std::optional<double> validation = {}) {
    return report_.write_summary({status, step_, validation, test_loss_, best_, saved_});
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
  const RunOptions& options_;
  std::unique_ptr<TrainData> data_;
  Positions& positions_;
  RunReport report_;
  RunState state_;
  size_t shape_ = 0;  // of the last batch
  double best_validation_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;       // evaluations
  int64_t evaluated_step_ = -1;  // the last whose evaluation counted
  std::optional<double> last_validation_, test_loss_;
  std::optional<BestEvaluation> best_;
  int64_t named_best_ = -1;  // the best step that the last checkpoint names
  int64_t step_ = 0, saved_step_ = -1;
  std::optional<DirectoryLock> held_;   // train.out
  std::optional<Failure> log_failure_;  // of the first process, where there are several
  ProgressEvents events_;
  std::string saved_;
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
    return fail("expected the {} devices of {}, got {} processes of {} each; set mesh.data or the "
                "number of processes",
                job.mesh().size(), to_string(job.mesh()), n_processes, n_here);
  std::vector<DevicePtr> devices;
  for (int64_t i = 0; i < n_here; ++i) devices.push_back(make_device());
  return Positions(job.mesh(), std::move(devices), world, config.runtime.timeout);
}

Result<int> run_training(const Job& job, const Choice& choice, const Budgets& budgets,
                         const RunOptions& options, std::unique_ptr<TrainData> data) {
  if (!choice.plan)
    return fail(
        "expected a choice with a plan, got none: nothing fits the budgets; describe_refusal() says "
        "what would");
  if (!data) {
    Result<std::unique_ptr<TrainData>> opened = job.model().open_data();
    if (!opened) return opened.failure();
    data = std::move(*opened);
  }
#ifdef __GLIBC__
  // Returns the memory that planning took, many times a small budget, to the system.
  ::malloc_trim(0);
#endif
  if (options.positions)
    return Run(job, *choice.plan, budgets, options, *options.positions, std::move(data)).run();
  Result<Positions> made = make_positions(job, budgets);
  if (!made) return made.failure();
  return Run(job, *choice.plan, budgets, options, *made, std::move(data)).run();
}

}  // namespace stow
