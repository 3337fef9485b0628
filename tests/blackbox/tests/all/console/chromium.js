// Starts Chromium in a folder of its own. Each of the other scripts is appended to this one.

const assert = require('node:assert/strict');
const { mkdtempSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { chromium } = require('playwright-core');

/** What the test gives to the script. */
const asked = JSON.parse(process.argv[1]);
const folder = mkdtempSync(join(tmpdir(), 'snowmint-console-'));

async function launch(settings = {}) {
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: '/usr/bin/chromium',
    headless: true,
    viewport: { width: 1120, height: 860 },
    locale: 'en-GB',
    timezoneId: 'Europe/Berlin',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    ...settings,
  });
  context.setDefaultTimeout(15_000);
  return context;
}

