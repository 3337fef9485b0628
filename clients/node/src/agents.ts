import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { createSecureContext, type SecureContextOptions } from "node:tls";

import { invalidFile } from "./errors.js";
import type { Settings } from "./settings.js";

/** How long an idle connection is kept, in ms; shorter than the server's limit. */
const KEPT_IDLE = 60_000;

const options: http.AgentOptions = {
  keepAlive: true,
  timeout: KEPT_IDLE,
  // One request of each namespace is in flight.
  maxFreeSockets: 16,
  // `localhost` has two addresses, and a server may listen at one of them.
  autoSelectFamily: true,
};

/** Keep the connections to all servers. They are opened on demand. */
export class Agents {
  readonly http = new http.Agent(options);
  readonly https: https.Agent;

  constructor({ caFile, clientCertificate }: Settings) {
    const secure: SecureContextOptions = { minVersion: "TLSv1.2" };
    if (caFile !== undefined) {
      secure.ca = use("caFile", () => authorities(caFile));
    }
    if (clientCertificate !== undefined) {
      secure.cert = use("clientCertificate", () => readFileSync(clientCertificate.certFile));
      secure.key = use("clientCertificate", () => readFileSync(clientCertificate.keyFile));
    }
    const secureContext = use("clientCertificate", () => createSecureContext(secure));
    // Explicit, so that NODE_TLS_REJECT_UNAUTHORIZED=0 does not turn it off.
    this.https = new https.Agent({ ...options, secureContext, rejectUnauthorized: true });
  }

  close(): void {
    this.http.destroy();
    this.https.destroy();
  }
}

function authorities(file: string): string {
  const pem = readFileSync(file, "utf8");
  try {
    new X509Certificate(pem);
  } catch (cause) {
    throw new Error(`${file}: the file has no certificate`, { cause });
  }
  return pem;
}

function use<T>(option: string, load: () => T): T {
  try {
    return load();
  } catch (cause) {
    throw invalidFile(option, cause);
  }
}
