export interface Highlighter { registerLanguage(name: string, grammar: unknown): void; getLanguage(name: string): unknown; highlight(code: string, options: { language: string; ignoreIllegals?: boolean }): { value: string } }
declare const hljs: Highlighter;
export default hljs;
