/** Shapes that come from the server (chat.selectors, chat.protocol, routing.types) and the client's own. */

export type TierName = 'local' | 'hpc' | 'cloud';
export type TierChoice = TierName | 'auto';
export type Outcome = '' | 'complete' | 'cancelled' | 'interrupted' | 'damaged' | 'failed';

export interface ErrorWords {
  code: string;
  title: string;
  happened: string;
  kept: string;
  todo: string;
  retryable?: boolean;
  ref: string;
  field?: string;
  retry_after_s?: number | null;
}

export interface Judgement {
  complexity: 'LOW' | 'MEDIUM' | 'HIGH';
  probabilities: Partial<Record<'LOW' | 'MEDIUM' | 'HIGH', number>>;
  source: string;
  reason: string;
  took_ms: number;
}

export interface Candidate {
  tier: TierName;
  model: string;
  allowed: boolean;
  why_not: string;
  cost_micro: number;
  wait_s: number;
}

export interface Route {
  tier: TierName;
  model: string;
  model_label: string;
  reason: string;
  pinned: boolean;
  judgement: Judgement | null;
  candidates: Candidate[];
  fallbacks: TierName[];
}

export interface Turn {
  id: string;
  conversation: string;
  client_id: string;
  position: number;
  version: number;
  continues: string | null;
  question: string;
  tier_choice: TierChoice;
  model_choice: string;
  state: 'queued' | 'running' | 'ended';
  outcome: Outcome;
  answer: string;
  reasoning: string;
  error: ErrorWords | null;
  route: Route | null;
  tier: TierName | '';
  model: string;
  model_label: string;
  attempts: number;
  tokens_in: number;
  tokens_out: number;
  tokens_estimated: boolean;
  cost_micro: number;
  first_text_ms: number | null;
  total_ms: number | null;
  events_end: number;
  created_at: string;
  ended_at: string | null;
}

export interface Fallback {
  from: TierName;
  to: TierName;
  why: string;
}

/** A turn as the page keeps it: what the server said, and how far its events are applied. */
export interface LiveTurn extends Turn {
  /** The last event applied. */
  seen: number;
  /** Grows when another runner takes the turn over. */
  fence: number;
  /** The step on the way to the first text, in the server's words. */
  step: { state: string; detail: string } | null;
  /** When each stage was first seen here, Date.now(); `start` is 0 when the page came later than the question. */
  marks: Record<string, number>;
  fallback: Fallback | null;
}

export type TurnEvent = { t: 'event'; turn: string; fence: number; seq: number } & (
  | { kind: 'route'; route: Route }
  | { kind: 'attempt'; attempt: number; tier: TierName; model: string; model_label: string }
  | { kind: 'state'; state: string; detail: string }
  | { kind: 'delta'; text: string }
  | { kind: 'reasoning'; text: string }
  | { kind: 'fallback'; from: TierName; to: TierName; why: string }
  | { kind: 'done'; outcome: Outcome; stored: Omit<Turn, 'answer' | 'reasoning'>; error: ErrorWords | null }
);

export interface ConversationChanged {
  t: 'conversation.changed';
  conversation: string;
  title: string;
  updated_at: string;
  campus_only: boolean;
  deleted: boolean;
}

export type ServerMessage =
  | { t: 'hello'; protocol: number; heartbeat_s: number; user: unknown }
  | { t: 'pong'; at: number }
  | { t: 'watching'; conversation: string }
  | { t: 'turn.accepted'; for: string | null; turn: Turn; duplicate: boolean }
  | TurnEvent
  | ConversationChanged
  | { t: 'error'; for: string | null; error: ErrorWords };

export interface ModelInfo {
  name: string;
  label: string;
  window: number;
  price_in_micro: number;
  price_out_micro: number;
  free: boolean;
  note: string;
  typical_first_text_s: number;
}

export interface TierInfo {
  tier: TierName;
  label: string;
  configured: boolean;
  usable: boolean;
  why: string;
  models: ModelInfo[];
}

export interface Boot {
  ws: string;
  conversation: string | null;
  new_conversation: string;
  title: string;
  campus_only: boolean;
  /** The newest positions; older ones are asked for. */
  turns: Turn[];
  /** Where the side bar's next page starts, or "". */
  more_conversations: string;
  tiers: TierInfo[];
  urls: { conversation: string; rename: string; delete: string; campus_only: string; search: string; theme: string; chat: string; turns: string; conversations: string; login?: string };
  csrf: string;
  user: Record<string, unknown>;
}

export interface Pick {
  tier: TierChoice;
  model: string;
}

export interface SearchHit {
  conversation: string;
  title: string;
  turn: string | null;
  position: number | null;
  where: 'title' | 'question' | 'answer';
  snippet: [string, boolean][];
}
