"""The order of equal elements in LiteRT's own build, which follows from libstdc++'s `unordered_set` and `sort`.

Its planner collects tensors in hash sets, then sorts them without defining the order of equal ones. Their order follows
from the implementations: a set inserts a new element first unless its bucket has others, and the sort is not stable for
more than 16 elements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

BUCKET_COUNTS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933)
"""Bucket counts of a growing set, which takes the next count when it has as many elements as buckets."""

INSERTION_SORTED = 16
"""Ranges up to this size are left to the final insertion sort."""

Less = Callable[[int, int], bool]


def set_order(values: Iterable[int]) -> list[int]:
    """Distinct numbers from 0 in the iteration order of an `unordered_set<int>` that they were inserted into."""
    order: list[int] = []
    buckets = BUCKET_COUNTS[0]
    for value in values:
        if value in order:
            continue
        if len(order) + 1 > buckets:
            buckets = BUCKET_COUNTS[bisect_left(BUCKET_COUNTS, buckets) + 1]
            rehashed: list[int] = []
            for element in order:
                _put_first(rehashed, element, buckets)
            order = rehashed
        _put_first(order, value, buckets)
    return order


def _put_first(order: list[int], value: int, buckets: int) -> None:
    """Insert before the other elements of its bucket, or at the front if the bucket is empty."""
    same = (place for place, other in enumerate(order) if other % buckets == value % buckets)
    order.insert(next(same, 0), value)


def unstable_sorted(values: Iterable[int], less: Less) -> list[int]:
    """The values as `std::sort` orders them: quicksort with the median of three, then insertions.

    The fallback to heap sort for repeated bad partitions is not implemented.
    """
    items = list(values)
    _partition_all(items, 0, len(items), less)
    for place in range(1, len(items)):
        item, free = items[place], place
        while free > 0 and less(item, items[free - 1]):
            items[free] = items[free - 1]
            free -= 1
        items[free] = item
    return items


def _partition_all(items: list[int], first: int, last: int, less: Less) -> None:
    while last - first > INSERTION_SORTED:
        _median_to_first(items, first, (first + 1, first + (last - first) // 2, last - 1), less)
        cut = _partition(items, first + 1, last, first, less)
        _partition_all(items, cut, last, less)
        last = cut


def _median_to_first(items: list[int], first: int, places: tuple[int, int, int], less: Less) -> None:
    a, b, c = places
    if less(items[a], items[b]):
        median = b if less(items[b], items[c]) else c if less(items[a], items[c]) else a
    else:
        median = a if less(items[a], items[c]) else c if less(items[b], items[c]) else b
    items[first], items[median] = items[median], items[first]


def _partition(items: list[int], low: int, high: int, pivot: int, less: Less) -> int:
    while True:
        while less(items[low], items[pivot]):
            low += 1
        high -= 1
        while less(items[pivot], items[high]):
            high -= 1
        if low >= high:
            return low
        items[low], items[high] = items[high], items[low]
        low += 1
