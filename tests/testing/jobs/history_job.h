// A small job over sequences of ids in MultiSlot text, with every layer that recommender models use, and labels that
// depend on what an item and the history before it have in common.
#ifndef WEIR_TESTS_TESTING_JOBS_HISTORY_JOB_H_
#define WEIR_TESTS_TESTING_JOBS_HISTORY_JOB_H_

#include <string>

namespace weir {

// Job text. Reads "train.txt" and "eval.txt": "label", two floats "x", one "item" and a "history" of 0 to 9 items with
// padding (-1) among them, which share an id space. The history is read as a sequence of the last 6 (attention;
// pooled), of the last 3 from a table that servers hold densely, of the last 2 where padding counts like an item, and
// pooled as a whole. 3 epochs of 188 steps.
extern const char kHistoryJob[];

// Writes train.txt with 6,000 examples and eval.txt with 2,000.
void WriteHistoryData(const std::string& directory);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_HISTORY_JOB_H_
