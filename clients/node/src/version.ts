/** The version of this client. */
export const VERSION = "0.1.0";
