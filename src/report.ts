/** Hears what an operator should know: one sentence and, for a fault, its cause. */
export type Report = (message: string, cause?: unknown) => void;

/** Where reports go if nobody else asks for them. */
export const reportToConsole: Report = (message, cause) => {
  console.error(`plant-store: ${message}`, ...(cause === undefined ? [] : [cause]));
};
