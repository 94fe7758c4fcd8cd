// Rank sections of the site for the search field.
//
// The theme's own worker shows a section only if it has every word of the query, so it finds nothing for an error that
// was pasted with a reader's own file names, and it shows names of the API before pages. Here, rare words count more than
// frequent ones, titles count more than texts, and the API comes behind pages. The worker takes the theme's messages:
// SETUP with all sections, then a QUERY for each change of the field, and answers READY and RESULT.

const SETUP = 0, READY = 1, QUERY = 2, RESULT = 3
const TITLE = 4, PAGE = 1, TEXT = 1 // what a word counts in the title of a section, in that of its page, and in the text
const SIMILAR = 0.7 // factor of words that begin with a word of the query, or that it misspells
const API = 0.5 // factor of sections of the API, where a name in the title still counts more than one in a text
const WHOLE = 1.2 // factor of the first section of a page, which has the page's title
const SHOWN = 30

let sections = []
const frequency = new Map() // number of sections for each word

// Words, without what differs between "rotate", "rotates" and "rotation"
function stem(word) {
  const plain = word.normalize("NFKD").toLowerCase().replace(/ies$/, "y")
  const short = plain.replace(/(ations?|ions?|ures?|ing|ed|es|e)$|([^s])s$/, "$2")
  return short.length < 3 ? plain : short
}

// Each word of a text with HTML, with its place
function* tokens(text) {
  for (const { 0: word, index } of text.matchAll(/<[^>]*>|&\w+;|[\p{L}\p{N}]+/gu))
    if (!/^[<&]/.test(word)) yield { stem: stem(word), start: index, end: index + word.length }
}

const stems = text => [...tokens(text)].map(token => token.stem)

function prepare({ location, title, text, path }, id) {
  const named = stems(title.replace(/<small>.*/, "")), counts = new Map()
  for (const word of stems(text)) counts.set(word, (counts.get(word) ?? 0) + 1)
  const page = new Set(stems(path.join(" ")))
  const isApi = location.includes("/api/")
  // The API has two sections for the same class: the page, and its first heading with the signature.
  if (isApi && !location.includes("#")) return null
  for (const word of new Set([...named, ...page, ...counts.keys()])) frequency.set(word, (frequency.get(word) ?? 0) + 1)
  const factor = (isApi ? API : 1) * (location.includes("#") ? 1 : WHOLE)
  return { id, named, counts, page, length: Math.sqrt(1 + stems(text).length / 100), factor, title, text, path: path.join("") }
}

// The words of the site that a word of the query stands for: itself, words that begin with it, or its misspelling
function meant(word, isLast) {
  const known = [...frequency.keys()]
  const begun = isLast || !frequency.has(word) ? known.filter(other => word.length > 1 && other.startsWith(word)) : []
  if (frequency.has(word)) begun.push(word)
  if (begun.length || word.length < 3) return new Set(begun)
  return new Set(known.filter(other => isMisspelt(word, other)))
}

// Whether two words differ by one letter that is missing, additional, other, or swapped with its neighbor
function isMisspelt(one, other) {
  if (Math.abs(one.length - other.length) > 1) return false
  let start = 0
  while (start < one.length && one[start] === other[start]) start++
  const rest = word => [word.slice(start), word.slice(start + 1)]
  const [a, shorterA] = rest(one), [b, shorterB] = rest(other)
  const swapped = a.length > 1 && a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2)
  return shorterA === shorterB || a === shorterB || shorterA === b || swapped
}

const weight = word => Math.log(1 + sections.length / (1 + (frequency.get(word) ?? 0)))

function score(section, query) {
  let sum = 0, found = 0
  for (const { word, words, value } of query) {
    const best = Math.max(...[...words].map(other => {
      const count = section.counts.get(other) ?? 0
      const title = section.named.includes(other) ? TITLE : 0, page = section.page.has(other) ? PAGE : 0
      return (other === word ? 1 : SIMILAR) * weight(other) * (title + page + TEXT * count / (count + section.length))
    }))
    sum += best
    if (best) found += value
  }
  const total = query.reduce((all, { value }) => all + value, 0)
  // A title that has little beside the words of the query fits better than a long one.
  const all = section.named.reduce((sum, word) => sum + weight(word), 0)
  const asked = section.named.filter(word => query.some(({ words }) => words.has(word)))
  const fits = all ? asked.reduce((sum, word) => sum + weight(word), 0) / all : 0
  return sum * (found / total) ** 2 * (1 + fits / 2) * section.factor
}

function mark(text, words) {
  return [...tokens(text)].filter(token => words.has(token.stem))
    .map(({ start, end }) => ({ start, end, value: end - start }))
}

function find(input) {
  const asked = [...new Set(stems(input))]
  const query = asked.map((word, i) => ({ word, words: meant(word, i === asked.length - 1) }))
    .filter(({ words }) => words.size) // Words that the site does not have, such as a reader's file names, do not count.
    .map(part => ({ ...part, value: Math.min(...[...part.words].map(weight)) }))
  const ranked = sections.map(section => ({ section, value: query.length ? score(section, query) : 0 }))
    .filter(({ value }) => value > 0).sort((a, b) => b.value - a.value)
  const shown = ranked.filter(({ value }) => value > ranked[0].value / 20).slice(0, SHOWN)
  const words = new Set(query.flatMap(part => [...part.words]))
  return shown.map(({ section, value }) => ({
    id: section.id,
    matches: ["title", "path", "text"].map((field, i) => ({
      id: 4 * section.id + i, field, score: value, value: { highlight: { ranges: mark(section[field], words) } }
    }))
  }))
}

self.onmessage = ({ data: { type, data } }) => {
  if (type === SETUP) {
    sections = data.items.map(prepare).filter(section => section)
    self.postMessage({ type: READY })
  }
  if (type === QUERY) {
    const items = typeof data.input === "string" ? find(data.input) : []
    self.postMessage({ type: RESULT, data: { items, pagination: { total: items.length } } })
  }
}
