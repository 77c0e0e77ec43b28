'use strict';

// The Node.js client (npm `ali-ons`) driven over JSON lines.
//
//   driver.js produce NAMESRV GROUP OPTIONS-JSON
//   driver.js consume NAMESRV GROUP OPTIONS-JSON
//
// Commands come on stdin, events leave on stdout, one JSON object per line;
// support/peers/clients.py is the other end. The library logs with console.warn and console.error, which go to stderr.

const crypto = require('crypto');
const fs = require('fs');
const readline = require('readline');
const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const BODY_SHOWN_MAX = 2000;

function emit(event, fields = {}) {
  const data = Buffer.from(JSON.stringify({ event, ...fields }) + '\n');
  let written = 0;
  while (written < data.length) {
    try {
      written += fs.writeSync(1, data, written);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

function optionsOf(nameSrv, options) {
  return {
    httpclient,
    nameSrv,
    // The library's timers are its users' to set; shorter ones make shorter tests.
    pollNameServerInteval: options.poll_ms || 5000,
    heartbeatBrokerInterval: options.heartbeat_ms || 5000,
    rebalanceInterval: options.rebalance_ms || 5000,
    persistConsumerOffsetInterval: options.persist_ms || 1000,
    connectTimeout: 3000,
    ...(options.access_key ? { accessKey: options.access_key, secretKey: options.secret_key } : {}),
  };
}

function bodyOf(command) {
  return command.random_bytes ? crypto.randomBytes(command.random_bytes) : Buffer.from(command.body);
}

function messageOf(command) {
  const body = bodyOf(command);
  const message = command.tags
    ? new Message(command.topic, command.tags, body)
    : new Message(command.topic, body);
  if (command.keys) message.keys = command.keys.split(' ');
  if (command.delay_level) message.delayTimeLevel = command.delay_level;
  if (command.mode === 'ordered') message.shardingKey = String(command.shard);
  Object.assign(message.properties, command.properties || {});
  return message;
}

async function commands(handle) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.op === 'stop') return;
    await handle(command);
  }
}

async function produce(nameSrv, group, options) {
  const producer = new Producer({
    ...optionsOf(nameSrv, options),
    producerGroup: group,
    sendMsgTimeout: options.timeout_ms || 10000,
    compressMsgBodyOverHowmuch: options.compress_over || 4096,
    retryTimesWhenSendFailed: options.retries === undefined ? 3 : options.retries,
  });
  producer.on('error', error => emit('error', { error: error.message }));
  await producer.ready();
  emit('ready', { client: 'js' });
  await commands(async command => {
    try {
      const result = await producer.send(messageOf(command));
      emit('sent', {
        id: command.id,
        status: result.sendStatus,
        msg_id: result.msgId,
        queue_offset: Number(result.queueOffset),
        queue_id: result.messageQueue && result.messageQueue.queueId,
      });
    } catch (error) {
      emit('failed', { id: command.id, error: `${error.name}: ${error.message}`, code: error.code });
    }
  });
  await producer.close();
}

function received(message) {
  const body = message.body || Buffer.alloc(0);
  return {
    topic: message.topic,
    body: body.length <= BODY_SHOWN_MAX ? body.toString() : null,
    size: body.length,
    sha256: crypto.createHash('sha256').update(body).digest('hex'),
    tags: message.tags || null,
    keys: message.keys || null,
    queue_id: message.queueId,
    queue_offset: Number(message.queueOffset),
    commit_log_offset: Number(message.commitLogOffset),
    msg_id: message.msgId,
    reconsume_times: message.reconsumeTimes,
    born_timestamp: Number(message.bornTimestamp),
    store_timestamp: Number(message.storeTimestamp),
    store_size: message.storeSize,
    properties: message.properties,
  };
}

async function consume(nameSrv, group, options) {
  const consumer = new Consumer({ ...optionsOf(nameSrv, options), consumerGroup: group });
  consumer.on('error', error => emit('error', { error: error.message }));
  const failBelow = options.fail_below || 0;
  consumer.subscribe(options.topic, options.expression || '*', async message => {
    emit('message', received(message));
    // ACTION_RETRY gets lost when a retried message fails again; an exception does not.
    if (message.reconsumeTimes < failBelow) throw new Error('not this time');
  });
  await consumer.ready();
  emit('ready', { client: 'js' });
  await commands(async () => {});
  await consumer.close();
}

async function main() {
  const [role, nameSrv, group, options] = process.argv.slice(2);
  await { produce, consume }[role](nameSrv, group, JSON.parse(options));
  emit('stopped');
  process.exit(0);
}

main().catch(error => {
  emit('broken', { error: error.stack });
  process.exit(1);
});
