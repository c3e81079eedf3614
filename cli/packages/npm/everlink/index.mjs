// The same functions for ECMAScript modules.
import everlink from "./index.js";

export const { guarded, programPath } = everlink;
