// Of many bars, show what a screen can tell apart. `full` has all of them, by row and then by time; `shown` gets those
// that `range` shows. Bars of one row that lie within one pixel become one, whose `text` is -1. Without a `row`
// nothing is joined, and what is narrower than a pixel is left out.
const all = full.data, pixel = (range.end - range.start) / PIXELS
const row = all.row, {left, right, count} = all
const kept = [], reach = [], total = []
let last = -1
for (let i = 0; i < left.length; i++) {
  if (right[i] < range.start || left[i] > range.end) continue
  if (row === undefined) {
    if (right[i] - left[i] >= pixel) kept.push(i)
  } else if (last >= 0 && row[kept[last]] === row[i] && right[i] - left[kept[last]] < pixel) {
    reach[last] = Math.max(reach[last], right[i])
    total[last] += count[i]
  } else {
    last = kept.push(i) - 1
    reach.push(right[i])
    total.push(count[i])
  }
}
const data = {}
for (const [name, values] of Object.entries(all)) {
  data[name] = new values.constructor(kept.length)
  for (let i = 0; i < kept.length; i++) data[name][i] = values[kept[i]]
}
for (let i = 0; i < reach.length; i++) {
  if (total[i] > count[kept[i]]) {
    data.right[i] = reach[i]
    data.count[i] = total[i]
    if (data.text !== undefined) data.text[i] = -1
  }
}
shown.data = data
