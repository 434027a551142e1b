"""The goals of docs/benchmarks.md: bench/tables.py judges measurements by them, bench/machine_table.py prints them."""
STEP = {"small": 1.3, "medium": 1.2, "vocab": 1.7, "long": 1.2}  # least tokens/s in f32, of the better peer's
STEP_BF16 = 1.3  # the same of the better peer's better dtype, on a machine that has products of bf16
WIDENED = 0.9  # on other machines: least tokens/s in bf16, of our own f32's
APART = 1e-3  # most relative difference of losses from a peer's
READY = 10  # least ratio of JAX's compile time to ours
SAVE_ALL = {"small": 0.35, "medium": 0.5, "vocab": 0.65, "long": 0.12}  # most memory, of JAX's plan
BUDGET = {"small": 0.25, "medium": 0.4, "vocab": 0.6, "long": 0.10}  # the same if less is saved
MORE_TIME = 0.1  # most time that saving less may add, of the time of saving all
PRODUCT = 0.95  # least rate of a product, of oneDNN's
ATTENTION = 1  # least ratio of PyTorch's time to ours
TRIAD = 0.8  # least rate of a row program, of the triad's
MEDIUM_TIME = 1.15  # most time of medium's step, of the time of its FLOPs at the best rate of a product
