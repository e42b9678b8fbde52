// A small job in MultiSlot text whose labels can be learned from its ids, and which trains quickly.
#ifndef WEIR_TESTS_TESTING_JOBS_SLOT_JOB_H_
#define WEIR_TESTS_TESTING_JOBS_SLOT_JOB_H_

#include <cstdint>
#include <string>

namespace weir {

// Job text. Reads "train.txt" and "eval.txt": "label", four floats "x", and "cat" of the slots "a" (ids 0 to 49) and
// "b" (100 to 149), which share an id space. Tables "vectors" (Adagrad) and "weights" (FTRL), a tower with Adam. 8
// epochs of 63 steps.
extern const char kSlotJob[];

// AUC of eval.txt that every mode of training must reach. The labels allow about 0.85, and ids carry most of it.
inline constexpr double kSlotJobAuc = 0.78;

// Returns example n of one endless data set, without its end of line. missing_label: the label slot has no value.
std::string SlotLine(int64_t example, bool missing_label = false);
int SlotLabel(int64_t example);

// Writes examples [begin, end), one per line.
void WriteSlotLines(const std::string& file, int64_t begin, int64_t end, bool missing_labels = false);

// Writes train.txt with examples [0, 2000) and eval.txt with [2000, 3000).
void WriteSlotData(const std::string& directory);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_SLOT_JOB_H_
