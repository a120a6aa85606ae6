// Under `isthmus run --each`: Node on the first node opens 100 connections to the
// second at once, by its name, and gets back what it sent over each; then it
// fetches 100 pages. The receiver checks every byte.

const http = require('http');
const net = require('net');

const COUNT = 100;
const NET_PORT = 7000;
const HTTP_PORT = 7001;
const DEADLINE_MS = 150_000;

const peer = process.env.ISTHMUS_NODE_LIST.split(',')[1];
const data = (number) => Buffer.alloc(65_536 + number, `these are the bytes of ${number}, `);

function check(bytes, number) {
  if (!bytes.equals(data(number))) throw new Error(`${bytes.length} other bytes than those of ${number}`);
}

async function bytesOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function serve() {
  let left = 2 * COUNT;
  const done = () => {
    left -= 1;
    if (left > 0) return;
    echo.close();
    web.close();
    console.log(`served ${2 * COUNT}`);
  };
  const echo = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.pipe(socket);
    socket.on('close', done);
  });
  const web = http.createServer(async (request, response) => {
    const number = Number(request.url.slice(1));
    check(await bytesOf(request), number);
    response.on('close', done);
    response.end(data(COUNT + number));
  });
  // The client begins with the echo.
  web.listen(HTTP_PORT, () => echo.listen(NET_PORT));
}

function connect() {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host: peer, port: NET_PORT, allowHalfOpen: true });
    socket.once('connect', () => resolve(socket));
    socket.once('error', reject);
  });
}

// Waits until the server listens.
async function connected() {
  for (;;) {
    try {
      return await connect();
    } catch (error) {
      if (error.code !== 'ECONNREFUSED') throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function echoed(socket, number) {
  socket.end(data(number));
  check(await bytesOf(socket), number);
}

function fetched(number, agent) {
  return new Promise((resolve, reject) => {
    const options = { host: peer, port: HTTP_PORT, path: `/${number}`, method: 'POST', agent };
    const request = http.request(options, (response) => {
      bytesOf(response).then((bytes) => check(bytes, COUNT + number)).then(resolve, reject);
    });
    request.on('error', reject);
    request.end(data(number));
  });
}

async function call() {
  const numbers = [...Array(COUNT).keys()];
  const first = await connected();
  const sockets = [first, ...(await Promise.all(numbers.slice(1).map(connect)))];
  await Promise.all(sockets.map(echoed));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
  await Promise.all(numbers.map((number) => fetched(number, agent)));
  agent.destroy();
  console.log(`${COUNT} echoes and ${COUNT} pages are right`);
}

setTimeout(() => { throw new Error('not within the time'); }, DEADLINE_MS).unref();
if (process.env.ISTHMUS_NODE_RANK === '1') serve();
else call();
