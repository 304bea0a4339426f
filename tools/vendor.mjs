// Copy the browser libraries from node_modules into the static files, or check that the copies are unchanged.
//
//   npm ci --ignore-scripts && node tools/vendor.mjs      copy, and write SHA256SUMS
//   node tools/vendor.mjs --check                          fail when a copy differs from SHA256SUMS,
//                                                          or from node_modules where that is installed
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const MODULES = join(ROOT, 'node_modules');
const VENDOR = join(ROOT, 'chat', 'static', 'chat', 'vendor');
const SUMS = join(VENDOR, 'SHA256SUMS');
const LANGUAGES = [
  'bash', 'c', 'cpp', 'css', 'diff', 'dockerfile', 'fortran', 'go', 'ini', 'java', 'javascript', 'json', 'julia', 'latex',
  'makefile', 'markdown', 'matlab', 'python', 'r', 'rust', 'shell', 'sql', 'typescript', 'xml', 'yaml',
];

/** Target under vendor/ → source under node_modules/. The typings are for the type check only. */
const FILES = {
  'markdown-it/markdown-it.js': 'markdown-it/dist/browser/markdown-it.esm.min.mjs',
  'markdown-it/LICENSE': 'markdown-it/LICENSE',
  'dompurify/purify.js': 'dompurify/dist/purify.es.mjs',
  'dompurify/LICENSE': 'dompurify/LICENSE',
  'katex/katex.js': 'katex/dist/katex.mjs',
  'katex/LICENSE': 'katex/LICENSE',
  'highlight/core.js': '@highlightjs/cdn-assets/es/core.min.js',
  'highlight/LICENSE': '@highlightjs/cdn-assets/LICENSE',
  ...Object.fromEntries(
    LANGUAGES.map((name) => [`highlight/languages/${name}.js`, `@highlightjs/cdn-assets/es/languages/${name}.min.js`]),
  ),
};

/** Declarations beside the copies, so that the type check does not read the libraries themselves. */
const HIGHLIGHT = 'export interface Highlighter { registerLanguage(name: string, grammar: unknown): void; getLanguage(name: string): unknown; highlight(code: string, options: { language: string; ignoreIllegals?: boolean }): { value: string } }\n';
const TYPES = {
  'markdown-it/markdown-it.d.ts': "export { default } from 'markdown-it';\n",
  'dompurify/purify.d.ts': "export { default } from 'dompurify';\n",
  'katex/katex.d.ts': "export { default } from 'katex';\n",
  'highlight/core.d.ts': `${HIGHLIGHT}declare const hljs: Highlighter;\nexport default hljs;\n`,
};

/** @param {Buffer} data */
const sha256 = (data) => createHash('sha256').update(data).digest('hex');

/** Return the library text as it is served: without the line naming a source map that is not shipped. @param {string} source */
function served(source) {
  const text = readFileSync(join(MODULES, source), 'utf8');
  return Buffer.from(source.endsWith('LICENSE') ? text : text.replace(/\n?\/\/# sourceMappingURL=\S+\s*$/, '\n'));
}

/** @param {string} target */
const wanted = (target) => (target in TYPES ? Buffer.from(TYPES[target]) : served(FILES[target]));

/** @param {string} folder @returns {string[]} */
const walk = (folder) =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? walk(join(folder, entry.name)) : [join(folder, entry.name)],
  );

function copy() {
  rmSync(VENDOR, { recursive: true, force: true });
  const lines = [];
  for (const target of [...Object.keys(FILES), ...Object.keys(TYPES)].sort()) {
    const data = wanted(target);
    mkdirSync(dirname(join(VENDOR, target)), { recursive: true });
    writeFileSync(join(VENDOR, target), data);
    lines.push(`${sha256(data)}  ${target}\n`);
  }
  writeFileSync(SUMS, lines.join(''));
  console.log(`${lines.length} files in ${relative(ROOT, VENDOR)}`);
}

/** @returns {string[]} what differs, in words */
function differences() {
  const sums = new Map(readFileSync(SUMS, 'utf8').trim().split('\n').map((line) => [line.slice(66), line.slice(0, 64)]));
  const there = walk(VENDOR).map((path) => relative(VENDOR, path).split(sep).join('/')).filter((name) => name !== 'SHA256SUMS');
  const found = there.filter((name) => !sums.has(name)).map((name) => `${name}: not listed in SHA256SUMS`);
  for (const [name, sum] of sums) {
    const path = join(VENDOR, name);
    if (!existsSync(path)) found.push(`${name}: missing`);
    else if (sha256(readFileSync(path)) !== sum) found.push(`${name}: changed`);
    if (!(name in FILES || name in TYPES)) found.push(`${name}: not in tools/vendor.mjs`);
    else if (existsSync(MODULES) && sha256(wanted(name)) !== sum) found.push(`${name}: differs from node_modules`);
  }
  return found.concat([...Object.keys(FILES), ...Object.keys(TYPES)].filter((name) => !sums.has(name)).map((name) => `${name}: not copied`));
}

if (process.argv.includes('--check')) {
  const found = differences();
  for (const line of found) console.error(line);
  if (found.length) console.error('Run: node tools/vendor.mjs');
  process.exitCode = found.length ? 1 : 0;
} else {
  copy();
}
